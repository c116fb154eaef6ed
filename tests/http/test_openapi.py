"""The OpenAPI document: whole, true of its examples, and its examples work."""

import asyncio
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from proof.service import ServiceRunner

from accoda import App, Bury
from accoda.envelope import Hook
from accoda.flows.coordinator import Coordinator
from accoda.http.openapi import SCOPES, document
from accoda.http.operation import Operation
from accoda.http.options import ServiceOptions
from accoda.http.problems import KINDS
from accoda.http.security import Security, tokens
from accoda.http.table import operations
from accoda.runtime.heartbeat import PREFIX, Heartbeat, encode
from accoda.webhooks.call import Facts, call_job

TABLE = [operation for operation in operations() if not operation.hidden]
DOCUMENT: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document(TABLE, secured=True)))


def name(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


def entry(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][operation.path][operation.method.lower()]
    return found


def check(schema: dict[str, Any], value: object) -> None:
    """Refuse a value that does not fit a schema of the document."""
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    whole["components"] = DOCUMENT["components"]
    jsonschema_rs.validator_for(whole).validate(value)


@pytest.mark.parametrize("operation", TABLE, ids=name)
def test_every_operation_says_what_it_is_and_what_may_go_wrong(operation: Operation) -> None:
    found = entry(operation)
    assert found["summary"] and found["description"]
    assert found["operationId"] == operation.name
    assert (operation.request is None) or operation.example is not None
    if operation.scope is None:
        assert found["security"] == []
    else:
        assert found["security"] == [{"bearer": [operation.scope]}]
        assert operation.scope in SCOPES
        assert {"400", "401", "403", "413", "422", "429", "500", "503"} <= found["responses"].keys()


@pytest.mark.parametrize("operation", TABLE, ids=name)
def test_examples_fit_their_schemas(operation: Operation) -> None:
    found = entry(operation)
    for parameter in found["parameters"]:
        if "example" in parameter:
            check(parameter["schema"], parameter["example"])
    bodies = [found["requestBody"]["content"]] if "requestBody" in found else []
    for content in [*bodies, *(reply.get("content", {}) for reply in found["responses"].values())]:
        for kind in content.values():
            examples = [kind["example"]] if "example" in kind else []
            for example in [*examples, *(each["value"] for each in kind.get("examples", {}).values())]:
                check(kind["schema"], example)


@pytest.mark.parametrize("operation", TABLE, ids=name)
def test_every_parameter_of_a_path_is_described(operation: Operation) -> None:
    wanted = {part[1:-1] for part in operation.path.split("/") if part.startswith("{")}
    described = {each["name"] for each in entry(operation)["parameters"] if each["in"] == "path"}
    assert wanted == described
    assert wanted <= operation.path_example.keys()


def test_links_lead_to_operations_and_their_parameters() -> None:
    known = {operation.name: entry(operation) for operation in TABLE}
    for operation in TABLE:
        for reply in entry(operation)["responses"].values():
            for link in reply.get("links", {}).values():
                names = {each["name"] for each in known[link["operationId"]]["parameters"]}
                assert link["parameters"].keys() <= names


def test_a_client_generated_from_it_may_leave_out_what_is_optional_and_finds_every_field_in_an_answer() -> None:
    """openapi-typescript makes a property with a `default` required, and of `oneOf` and the like unions of types."""
    schemas = DOCUMENT["components"]["schemas"]
    assert not schemas["NewJobRequest"]["required"]
    for operation in TABLE:
        if operation.request is not None and (request := schemas.get(operation.request.__name__)) is not None:
            assert not {"oneOf", "anyOf", "allOf"} & request.keys(), name(operation)
            assert not any("default" in each for each in request["properties"].values()), name(operation)
    assert set(schemas["JobView"]["required"]) == schemas["JobView"]["properties"].keys()


def test_errors_are_kinds_that_there_are() -> None:
    for operation in TABLE:
        assert set(operation.errors) <= KINDS.keys(), name(operation)


def test_without_tokens_the_document_asks_for_none() -> None:
    plain = document(TABLE, secured=False)
    for path in plain["paths"].values():
        for operation in path.values():
            assert operation["security"] == []
            assert "401" not in operation["responses"]


def test_a_service_with_demands_says_that_their_jobs_are_not_made_by_hand() -> None:
    made = document(TABLE, secured=False, demands=("deals",))
    schema = {"$ref": "#/components/schemas/NewJobRequest", "components": made["components"]}
    fits = jsonschema_rs.validator_for(msgspec.to_builtins(schema)).is_valid
    assert [fits({"queue": name}) for name in ("emails", "deals", "deals.cache")] == [True, False, False]
    app = App("memory://")
    app.demand("deals")
    with ServiceRunner(app) as service:
        for queue in ("deals", "deals.cache"):
            assert service.post("/api/v1/jobs", {"queue": queue}).status == 422
            assert service.post(f"/api/v1/queues/{queue}/take", {}).status == 409
            assert service.post("/api/v1/schedules", {"name": "hourly", "queue": queue, "every": 60}).status == 422
            assert service.request("PUT", "/api/v1/schedules/hourly", {"queue": queue, "every": 60}).status == 422
        assert service.post("/api/v1/schedules", {"name": "hourly", "queue": "emails", "every": 60}).status == 201
        assert service.request("PATCH", "/api/v1/schedules/hourly", {"queue": "deals"}).status == 422
        shown = service.get("/openapi.json").json()["components"]["schemas"]["NewJobRequest"]
    assert shown == msgspec.json.decode(msgspec.json.encode(made["components"]["schemas"]["NewJobRequest"]))


# -- the examples, sent as they are


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceRunner]:
    app = App("memory://")
    app.budget("keepa", capacity=20, refill=20, per=60)
    app.demand("deals")
    with ServiceRunner(app, ServiceOptions(system_jobs=False)) as running:
        yield running


async def bury(app: App, queue: str) -> None:
    store = app.storage
    assert not await store.settle([Bury(job.lease, "broken") for job in await store.take(queue, 100)])


async def call(app: App) -> int:
    facts = Facts(id=7, queue="emails", attempts=0, created_at=1_700_000_000_000)
    [made] = await app.storage.enqueue([call_job(Hook("https://example.com/hooks"), "job.done", facts)])
    await bury(app, "accoda.webhooks")
    return made.id


async def beat(app: App, id: str) -> None:
    beat = Heartbeat(id, "mailer", "host-7", 4711, 0, 0, ("emails",), 2)
    await app.storage.write(PREFIX + id, encode(beat), ttl=600)


async def flow(app: App, path: str) -> str:
    """A flow with a node `ship` to which the operation can be done."""
    store = app.storage
    if path.endswith("/close"):
        batch = app.batch("import")
        await batch.__aenter__()
        return batch.id
    made = app.flow("order")
    made.add("stock", 17, name="reserve")
    made.add("parcels", 17, name="ship", after="reserve")
    await made.start()
    await Coordinator().run_once(store)
    if path.endswith("/retry"):
        await bury(app, "stock")
        await Coordinator().run_once(store)
    return made.id


def needed(service: ServiceRunner, operation: Operation) -> dict[str, Any]:
    """What an example speaks of is made first; the names and numbers by which it is found."""
    wanted = dict(operation.path_example)
    path = operation.path
    if path.startswith("/api/v1/webhooks"):
        wanted["id"] = asyncio.run(call(service.app)) if "id" in wanted else None
    elif "bulk/{id}" in path:
        wanted["id"] = service.post("/api/v1/jobs/bulk", {"action": "retry", "filter": {"queue": "x"}}).json()["id"]
    elif path.startswith("/api/v1/workers/{id}"):
        asyncio.run(beat(service.app, wanted["id"]))
    elif path.startswith("/api/v1/flows/{id}"):
        wanted["id"] = asyncio.run(flow(service.app, path))
    elif path.startswith("/api/v1/schedules/{name}"):
        service.request("PUT", "/api/v1/schedules/daily-report", {"queue": "reports", "every": 3600})
    elif "id" in wanted:
        service.post("/api/v1/queues/emails/resume")
        wanted["id"] = service.post("/api/v1/jobs", {"queue": "emails", "keepFor": 60}).json()["id"]
        if path.startswith("/api/v1/dead") or path.endswith("/retry"):
            asyncio.run(bury(service.app, "emails"))
    elif path.startswith("/api/v1/queues/{name}"):
        service.post("/api/v1/jobs", {"queue": "emails"})
    return wanted


OWN_LEASES = ("settle", "extend")
"""The leases in their examples were given by another store: they are refused as lost, or as none."""


@pytest.mark.parametrize("operation", TABLE, ids=name)
def test_requests_of_the_examples_work(service: ServiceRunner, operation: Operation) -> None:
    service.request("DELETE", "/api/v1/schedules/daily-report")
    path = operation.path
    for key, value in needed(service, operation).items():
        path = path.replace(f"{{{key}}}", str(value))
    query = "&".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in operation.query_example.items()
    )
    body = None if operation.request is None else msgspec.to_builtins(operation.example)
    reply = service.request(operation.method, f"{path}?{query}" if query else path, body)
    if path.endswith(OWN_LEASES):
        assert reply.status in (200, 409, 422)
        return
    assert reply.status in operation.replies, reply.body
    shape = entry(operation)["responses"][str(reply.status)].get("content", {}).get("application/json")
    if shape is not None:
        check(shape["schema"], reply.json())


# -- as it is served


def test_the_document_is_sent_once_to_a_client_that_keeps_it(service: ServiceRunner) -> None:
    first = service.get("/openapi.json")
    assert (first.status, first.headers["content-type"]) == (200, "application/json")
    again = service.get("/openapi.json", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert service.get("/openapi.json", if_none_match='"other"').status == 200


@pytest.mark.parametrize("path", ["/docs", "/docs/page.css", "/docs/page.js"])
def test_the_docs_page_allows_nothing_from_elsewhere(service: ServiceRunner, path: str) -> None:
    reply = service.get(path)
    policy = reply.headers["content-security-policy"]
    assert reply.status == 200
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for foreign in (b"http://", b"https://", b"<style", b"onclick=", b"innerHTML", b"eval("):
        assert foreign not in reply.body


def test_the_docs_page_has_a_place_for_every_kind_of_problem(service: ServiceRunner) -> None:
    assert service.get("/openapi.json").json()["x-problems"].keys() == KINDS.keys()


def test_the_document_asks_for_a_token_only_where_the_service_does() -> None:
    found = []
    for app in (App("memory://"), with_token(App("memory://"))):
        with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security())) as service:
            found.append(service.get("/openapi.json").json()["paths"]["/api/v1/jobs"]["post"])
    assert found[0]["security"] == [{"bearer": ["enqueue"]}, {}], "a token may be left out"
    assert "401" in found[0]["responses"], "a token that is shown must be valid, also where none is needed"
    assert found[1]["security"] == [{"bearer": ["enqueue"]}]


def with_token(app: App) -> App:
    asyncio.run(_make_token(app))
    return app


async def _make_token(app: App) -> None:
    await tokens.create(app.storage, "anna", ["read"], now=0)
