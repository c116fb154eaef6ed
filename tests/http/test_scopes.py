"""Every operation asks for the scope that its document names: without a token, and with another scope."""

import asyncio
from collections.abc import Iterator

import pytest
from proof.service import Reply, ServiceRunner

from accoda import App
from accoda.http.operation import Operation
from accoda.http.options import ServiceOptions
from accoda.http.security import SCOPES, Security, tokens
from accoda.http.table import operations

TABLE = operations()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[ServiceRunner, dict[str, str]]]:
    """A service behind the guard, and a token for each scope."""
    app = App("memory://")

    async def make() -> dict[str, str]:
        return {scope: (await tokens.create(app.storage, scope, [scope], now=0))[1] for scope in SCOPES}

    texts = asyncio.run(make())
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security(rate=1e6))) as running:
        yield running, texts


def ask(service: ServiceRunner, operation: Operation, token: str | None = None) -> Reply:
    path = operation.path
    for name, value in operation.path_example.items():
        path = path.replace(f"{{{name}}}", str(value))
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return service.request(operation.method, path, None if operation.request is None else {}, headers=headers)


def name(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


@pytest.mark.parametrize("operation", TABLE, ids=name)
def test_a_caller_without_a_token_is_asked_for_one_where_a_scope_is_needed(
    served: tuple[ServiceRunner, dict[str, str]], operation: Operation
) -> None:
    reply = ask(served[0], operation)
    assert (reply.status == 401) == (operation.scope is not None), reply.body
    assert ("www-authenticate" in reply.headers) == (operation.scope is not None)


@pytest.mark.parametrize("operation", [each for each in TABLE if each.scope is not None], ids=name)
def test_only_the_scope_that_is_named_and_admin_open_an_operation(
    served: tuple[ServiceRunner, dict[str, str]], operation: Operation
) -> None:
    service, texts = served
    for scope, token in texts.items():
        reply = ask(service, operation, token)
        if scope in (operation.scope, "admin"):
            assert reply.status not in (401, 403), (scope, reply.body)
        else:
            assert (reply.status, reply.json()["scope"]) == (403, operation.scope), scope
