"""The HTTP API and the dashboard inside a web application: under any prefix, behind the application's own login."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal, get_args
from weakref import WeakSet

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from accoda.app import App
from accoda.asgi.resolving import Resolver
from accoda.errors import InvalidInput
from accoda.http.options import ServiceOptions
from accoda.http.security.guard import IDENTITY, STILL, Guard
from accoda.http.security.identity import Identity, implied
from accoda.http.security.policy import Security
from accoda.http.service import Service
from accoda.service import create_service

log = logging.getLogger("accoda.asgi")

Scope = MutableMapping[str, Any]
Auth = Callable[..., Any]
"""A function of the request, plain or async, that gives an `Access`, a response, or None; it may have dependencies."""

May = Literal["full", "read"]

ASK_AGAIN = 10.0
"""Seconds after which the application is asked again whether the viewer of a live page may go on."""


class Access(Struct, frozen=True):
    """What a caller of the mounted service may do: `full` is everything, `read` is to look. `name` is for the log."""

    may: May
    name: str = "user"

    def __post_init__(self) -> None:
        if self.may not in get_args(May):
            raise InvalidInput("may", f'must be "full" or "read", not {self.may!r:.60}')

    @property
    def identity(self) -> Identity:
        return Identity(self.name, implied(["admin" if self.may == "full" else "read"]))


class Mounted:
    """An ASGI application for `web.mount(prefix, …)`."""

    def __init__(self, app: App, auth: Auth | Security) -> None:
        check_app(app)
        if not isinstance(auth, Security) and not callable(auth):
            raise InvalidInput(
                "auth",
                f"must be a function that says who may do what, not {auth!r:.60}; "
                "for development: Security(no_auth=True), from accoda.http.security",
            )
        self.app = app
        policy = auth if isinstance(auth, Security) else Security(no_auth=True)
        self._guard: Guard = create_service(app, ServiceOptions(policy=policy, system_jobs=False))
        self._auth: Auth | None = None if isinstance(auth, Security) else auth
        self._resolver = Resolver(web=True)
        if self._auth is not None:
            self._resolver.check(self._auth)
        _mounts.add(self)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and self._auth is not None:
            told = await self._ask(self._auth, scope)
            if not isinstance(told, Access):
                await _refuse(told, scope, receive, send)
                return
            scope = {**scope, IDENTITY: told.identity, STILL: self._still(self._auth, scope, told)}
        await self._guard(scope, receive, send)

    async def _ask(self, auth: Auth, scope: Scope) -> Access | Response | None:
        request = Request(scope)  # without its body, which is the service's to read
        overrides = getattr(scope.get("app"), "dependency_overrides", {})
        told = await self._resolver.call(auth, overrides, request)
        if told is None or isinstance(told, Access | Response):
            return told
        raise InvalidInput("auth", f"must give accoda.asgi.Access(…), a response, or None, not {told!r:.80}")

    def _still(self, auth: Auth, scope: Scope, told: Access) -> Callable[[], Awaitable[bool]]:
        """Whether the caller may go on with a stream: the application is asked again, now and then."""
        asked_at = time.monotonic()

        async def still() -> bool:
            nonlocal asked_at
            if time.monotonic() - asked_at < ASK_AGAIN:
                return True
            asked_at = time.monotonic()
            try:
                return await self._ask(auth, scope) == told
            except Exception as error:  # however the application says no
                log.debug("a stream ends: the application said %r", error)
                return False

        return still

    @property
    def _service(self) -> Service:
        service: Any = self._guard.inner
        return service  # type: ignore[no-any-return]

    def open(self) -> None:
        """The web application runs (again)."""
        self._service.polls.open()

    def leave(self) -> None:
        """End long polls and streams. Twice does no harm."""
        self._service.leave()

    async def close(self) -> None:
        """Let go of what runs beside the requests."""
        await self._guard.tokens.close()


def mount(app: App, *, auth: Auth | Security) -> Mounted:
    """The app's HTTP API and dashboard: `web.mount("/ops/jobs", mount(app, auth=staff))`.

    `auth` is called with each request, and says who may do what: `Access("full")`, `Access("read")`, a response (a
    redirect to the login), or None for 401. It may have dependencies, as a view of FastAPI has. With a `Security` the
    service asks for tokens of its own, as `accoda serve` does; `Security(no_auth=True)` lets everyone in who reaches it
    by a name of this machine.
    """
    return Mounted(app, auth)


def check_app(app: object) -> None:
    """Refuse the web application: in FastAPI's own pages that is what `app` is."""
    if not isinstance(app, App):
        raise InvalidInput("app", f"must be the accoda.App, which has the jobs, not {app!r:.80}")


_mounts: WeakSet[Mounted] = WeakSet()


def mounts_of(app: App) -> list[Mounted]:
    """What was mounted of an app; its lifespan opens and closes them, since a mounted application has none."""
    return [mounted for mounted in _mounts if mounted.app is app]


async def _refuse(told: Response | None, scope: Scope, receive: Any, send: Any) -> None:
    if told is None:
        raise HTTPException(401)  # the application's own handlers say it in its own way
    if 300 <= told.status_code < 400 and any(name == b"hx-request" for name, _ in scope["headers"]):
        # A form of a page was sent by a script, which would follow the redirect and show the login inside the page.
        told = Response(status_code=401, headers={"hx-redirect": told.headers["location"]})
    await told(scope, receive, send)
