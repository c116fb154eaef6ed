"""From an app and a table of operations to an ASGI application."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from accoda.http.endpoint import Endpoint
from accoda.http.long_polls import LongPolls
from accoda.http.operation import Operation
from accoda.http.options import ServiceOptions
from accoda.http.prefix import under_prefix
from accoda.http.problems import ProblemError, from_error, send_problem
from accoda.http.security.origins import SAFE
from accoda.http.security.pages import is_page, is_view, wants_json
from accoda.storage.common.reconnecting import limited_patience, set_patience

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.http.security.guard import Guard

Scope = MutableMapping[str, Any]
Mount = Callable[["App", ServiceOptions, LongPolls], Any]
"""Makes the application that serves the pages for people."""


class Service:
    """The application itself, without a guard.

    Paths without a parameter are looked up in a dict; only the others go through Starlette's router, whose cost grows
    with the number of its routes.
    """

    def __init__(
        self, app: App, options: ServiceOptions, table: Sequence[Operation], mount: Mount | None = None
    ) -> None:
        from starlette.routing import Route, Router

        self.app = app
        self.options = options
        self.table = table
        self.polls = LongPolls()
        resources = _resources(table, app, options, self.polls)
        self._exact = {
            (method, path): endpoint
            for path, resource in resources.items()
            if "{" not in path
            for method, endpoint in resource.endpoints.items()
        }
        self.dashboard: Any = None if mount is None else mount(app, options, self.polls)
        self._router = Router(
            routes=[Route(path, resource) for path, resource in _narrow_first(resources)],
            default=_nowhere,
            redirect_slashes=False,
            lifespan=self._life,
        )

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if scope.get("root_path"):
                await under_prefix(self, scope, receive, send)
                return
            set_patience(self.options.patience)
            endpoint = self._exact.get((scope["method"], scope["path"]))
            if endpoint is not None:
                await endpoint(scope, receive, send)
                return
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if self.dashboard is not None and scope["type"] == "http" and is_page(scope["method"], scope["path"]):
            if is_view(scope["path"]) and wants_json(scope["headers"]):
                await send_problem(send, self._no_page(scope))
            else:
                await self.dashboard(scope, receive, send)
            return
        scope["accoda.service"] = self
        await self._router(scope, receive, send)

    def _no_page(self, scope: Scope) -> ProblemError:
        """The answer to a program that asks for a page: where the API has it."""
        from starlette.routing import Match

        path = "/api/v1" + scope["path"].rstrip("/")
        found = any(route.matches({**scope, "path": path})[0] != Match.NONE for route in self._router.routes)
        where = f"the API has it at {path}" if found else "the API is below /api/v1, and /openapi.json lists its paths"
        if scope["method"] in SAFE:
            return ProblemError("not-acceptable", f"this is a page for people, in HTML; {where}")
        allow = (("allow", "GET, HEAD"),)
        return ProblemError("method-not-allowed", f"this is a page, which can only be read; {where}", headers=allow)

    def meet(self, guard: Guard) -> None:
        """Let the dashboard ask the guard about tokens, and the guard speak to its readers in pages."""
        if hasattr(self.dashboard, "meet"):
            self.dashboard.meet(guard)

    def leave(self) -> None:
        """End the long polls. Call it on the service's loop before the server waits for requests."""
        self.polls.close()

    @asynccontextmanager
    async def _life(self, _: object) -> AsyncIterator[Mapping[str, Any]]:
        self.polls.open()
        if hasattr(self.dashboard, "warm"):
            self.dashboard.warm()
        system_jobs = await self._start_system_jobs()
        try:
            yield {}
        finally:
            self.leave()
            if system_jobs is not None:
                await system_jobs.close()
            await self.app.close()

    async def _start_system_jobs(self) -> Any:
        with limited_patience(self.options.patience):
            await self.app.connections.get()
        if not self.options.system_jobs:
            return None
        from accoda.http.flow_metrics import flow_metrics_of
        from accoda.runtime.system_jobs import SystemJobs

        system_jobs = SystemJobs(self.app.storage, self.app.system_jobs(flow_metrics_of(self.app).ended))
        system_jobs.start()
        return system_jobs


class Resource:
    """A path with its methods."""

    __slots__ = ("allow", "endpoints")

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self.endpoints = endpoints
        if "GET" in endpoints:
            endpoints["HEAD"] = endpoints["GET"]  # the server leaves the body out
        self.allow = ", ".join(sorted([*endpoints, "OPTIONS"]))

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        endpoint = self.endpoints.get(scope["method"])
        if endpoint is not None:
            await endpoint(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            headers = [(b"allow", self.allow.encode()), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
        else:
            detail = f"{scope['method'][:20]} is no method of this path; it has {self.allow}"
            allow = (("allow", self.allow),)
            await send_problem(send, ProblemError("method-not-allowed", detail, headers=allow))


def _resources(table: Sequence[Operation], app: App, options: ServiceOptions, polls: LongPolls) -> dict[str, Resource]:
    endpoints: dict[str, dict[str, Endpoint]] = defaultdict(dict)
    for operation in table:
        for path in filter(None, (operation.path, operation.alias)):
            if operation.method in endpoints[path]:
                raise ValueError(f"two operations for {operation.method} {path}")
            endpoints[path][operation.method] = Endpoint(operation, app, options, polls)
    return {path: Resource(methods) for path, methods in endpoints.items()}


def _narrow_first(resources: Mapping[str, Resource]) -> list[tuple[str, Resource]]:
    """`/jobs/batch` before `/jobs/{id}`: the router takes the first that fits."""
    return sorted(resources.items(), key=lambda item: [part.startswith("{") for part in item[0].split("/")])


async def _nowhere(scope: Scope, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    pages: Any = getattr(scope["accoda.service"], "dashboard", None)
    if hasattr(pages, "nowhere") and not scope["path"].startswith("/api") and _reads_pages(scope):
        await pages.nowhere(scope, send)
        return
    detail = "nothing is at this path; /openapi.json lists what there is, and /docs shows it"
    await send_problem(send, from_error(ProblemError("not-found", detail)))


def _reads_pages(scope: Scope) -> bool:
    """Whether it is a browser that asks."""
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
