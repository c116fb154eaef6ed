"""The dashboard as an ASGI application: from a path to a page, an action, a file or a stream."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from accoda.clock import SystemClock
from accoda.dashboard import login
from accoda.dashboard.answers import SAID, Answer, drop, html, htmx_to, said, saying, see_other, send_answer
from accoda.dashboard.files import files
from accoda.dashboard.forms import cookies_of, headers_of, query_of, read_form
from accoda.dashboard.live import LivePages, stream
from accoda.dashboard.render import Frame, Renderer
from accoda.dashboard.routes import ActionCall, Elsewhere, Found, PageCall, PageRoute, actions, pages, split
from accoda.errors import StorageUnavailable
from accoda.http.prefix import prefix, public_path
from accoda.http.problems import ProblemError, from_error
from accoda.http.security.identity import LOCAL, Identity
from accoda.http.security.pages import COOKIE

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.http.long_polls import LongPolls
    from accoda.http.options import ServiceOptions
    from accoda.http.security.guard import Guard

log = logging.getLogger("accoda.dashboard")

Scope = MutableMapping[str, Any]
READS = ("GET", "HEAD")
ANSWER_WITHIN = 5.0
"""Seconds in which the store has to answer all that a page asks it. It may hang where it seems to be connected, and its
driver then waits for longer than a person does."""


class Dashboard:
    """Answers every path that belongs to the dashboard, see `accoda.http.security.pages`."""

    def __init__(self, app: App, options: ServiceOptions, polls: LongPolls) -> None:
        self.app = app
        self.polls = polls
        self.read_only = bool(getattr(options.policy, "read_only", False))
        self._clock = app.connections.clock or SystemClock()
        self._render = Renderer(self._clock)
        self.live_pages = LivePages(self._live_part)
        self.guard: Guard | None = None

    def meet(self, guard: Guard) -> None:
        """Use the guard's tokens, and show its refusals as pages."""
        self.guard = guard
        guard.as_page = self._refusal

    def warm(self) -> None:
        """Compile the templates in the background. Nothing waits for it."""
        threading.Thread(target=self._render.warm, name="accoda-templates", daemon=True).start()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        path = scope["path"]
        try:
            if path == "/live" and scope["method"] in READS:
                await stream(self, scope, receive, send)
                return
            answer = await self._answer(scope, receive, path)
        except Exception as error:
            answer = self._problem(scope, from_error(error))
        await send_answer(send, answer)

    async def nowhere(self, scope: Scope, send: Any) -> None:
        """The page for an address that leads nowhere."""
        error = ProblemError("not-found", "there is no such page; the links above lead to all pages")
        await send_answer(send, self._problem(scope, error))

    async def _answer(self, scope: Scope, receive: Any, path: str) -> Answer:
        method = scope["method"]
        if path.startswith("/static/"):
            return _file(scope, path.removeprefix("/static/"))
        if path in ("/login", "/logout"):
            return await login.answer(self, scope, receive)
        if path.startswith("/do/"):
            if method != "POST":
                raise ProblemError("method-not-allowed", "an action is sent as a form", headers=(("allow", "POST"),))
            return await self._act(scope, receive, path)
        if method not in READS:
            raise ProblemError("method-not-allowed", "a page can only be read", headers=(("allow", "GET, HEAD"),))
        return await self._page(scope, path)

    # -- pages

    async def _page(self, scope: Scope, path: str) -> Answer:
        found = pages().find(path)
        if found is None:
            raise ProblemError("not-found", "there is no page at this address")
        if (instead := self.kept_out(scope, found.route.scope)) is not None:
            return instead
        began, before = time.perf_counter(), said(cookies_of(headers_of(scope)))
        try:
            context = await self._view(found, scope["query_string"])
        except Elsewhere as other:
            return see_other(other.to, (saying(other.message),))
        if isinstance(context, Answer):
            return context
        text = self._render(found.route.template, self.frame(scope, found.route.section, before), context)
        took = (time.perf_counter() - began) * 1000
        return html(text, headers=(("server-timing", f"page;dur={took:.1f}"),), cookies=(drop(SAID),) if before else ())

    async def _view(self, found: Found[PageRoute], query: bytes) -> dict[str, Any] | Answer:
        call = PageCall(app=self.app, query=query_of(query), params=found.params)
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return await found.route.view(call)
        except TimeoutError as error:
            raise StorageUnavailable(f"the store did not answer a page within {ANSWER_WITHIN:g} s") from error

    def frame(self, scope: Scope, section: str = "", message: str = "") -> Frame:
        """The frame around a page."""
        identity, query = identity_of(scope), scope["query_string"].decode("latin-1")
        back = quote(scope["path"]) + (f"?{query}" if query else "")
        name = identity.name if identity.id is not None else ""
        return self._frame(identity, back, section=section, name=name, known=bool(name), said=message)

    def _frame(self, identity: Identity, back: str, **more: Any) -> Frame:
        may_change = identity.may("admin") and not self.read_only
        return Frame(
            root=prefix.get(), back=back, may_change=may_change, read_only=self.read_only, now=self._clock.now(), **more
        )

    def page(self, scope: Scope, template: str, context: dict[str, Any], status: int = 200) -> Answer:
        """A page without a route."""
        return html(self._render(template, self.frame(scope), context), status)

    def kept_out(self, scope: Scope, needed: str) -> Answer | None:
        """The answer to a viewer who may not see a page: the login page, without a token. None: the viewer may."""
        identity = identity_of(scope)
        if identity.may(needed):
            return None
        if identity.scopes:
            whose = "your token does not have" if identity.id is not None else "you do not have"
            raise ProblemError("forbidden", f"{whose} the scope {needed!r}", scope=needed)
        headers = headers_of(scope)
        if b"hx-request" in headers:
            return htmx_to("/login", 401)
        to = self.frame(scope).back if scope["method"] in READS else "/"
        stale = (drop(COOKIE),) if COOKIE in cookies_of(headers) else ()
        return see_other("/login" if to == "/" else f"/login?next={quote(to, safe='')}", stale)

    async def _live_part(self, address: str, identity: Identity) -> str:
        """The live part of a page, for all viewers with the rights of `identity`."""
        path, query = split(address)
        found = pages().find(path)
        if found is None or not identity.may(found.route.scope) or not found.route.live:
            raise ProblemError("not-found", "this page is not live")
        context = await self._view(found, query.encode())
        if isinstance(context, Answer):
            raise ProblemError("not-found", "a file is not live")
        frame = self._frame(identity, address, section=found.route.section)
        return self._render(found.route.template, frame, context, "live.html")

    async def may_stay(self, scope: Scope) -> bool:
        """Whether a stream may go on: its token may have been revoked by now."""
        return self.guard is None or await self.guard.still(scope)

    # -- actions

    async def _act(self, scope: Scope, receive: Any, path: str) -> Answer:
        found, identity = actions().find(path), identity_of(scope)
        if found is None:
            raise ProblemError("not-found", "there is no such action")
        if self.read_only:
            raise ProblemError("forbidden", "this service is read-only: it was started with --read-only")
        form = await read_form(scope, receive)
        if (instead := self.kept_out(scope, found.route.scope)) is not None:
            return instead
        done = await found.route.action(ActionCall(app=self.app, identity=identity, form=form, params=found.params))
        log.info("%s: %s: %s", identity.name, path, done.message)
        self.live_pages.refresh()
        headers = headers_of(scope)
        if b"hx-request" not in headers:
            return see_other(done.to, (saying(done.message),) if done.message else ())
        if _is_here(headers.get(b"hx-current-url", b"").decode("latin-1"), done.to):
            return html(self._render("said.html", self.frame(scope, message=done.message)))
        return htmx_to(done.to, cookies=(saying(done.message),) if done.message else ())

    # -- trouble

    def _problem(self, scope: Scope, error: ProblemError) -> Answer:
        """What is wrong, as a page, or as a line on the page that sent the request."""
        problem, headers = error.problem, headers_of(scope)
        if b"hx-request" not in headers:
            text = self._render("problem.html", self.frame(scope), {"problem": problem})
            return html(text, problem.status, headers=error.headers)
        if problem.status == 401:
            return htmx_to("/login", 401)
        text = self._render("said.html", self.frame(scope, message=problem.detail), {"wrong": True})
        return html(text, problem.status, headers=error.headers)

    def _refusal(self, scope: Scope, error: ProblemError) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        if error.problem.type == "/docs#storage":  # it was about to read the tokens, of which the viewer need not know
            error = ProblemError("storage", "the store does not answer, so nothing was done", headers=error.headers)
        answer = self._problem(scope, error)
        return answer.status, answer.raw_headers(), answer.body


def identity_of(scope: Scope) -> Identity:
    """The caller; without a guard before the service, anybody."""
    identity: Identity = scope.get("accoda.identity", LOCAL)
    return identity


def _file(scope: Scope, name: str) -> Answer:
    found = files().get(name)
    if found is None:
        raise ProblemError("not-found", "there is no such file")
    headers = (("etag", found.etag),)
    asked = headers_of(scope).get(b"if-none-match", b"").decode("latin-1")
    if found.etag in [each.strip().removeprefix("W/") for each in asked.split(",")]:
        return Answer(status=304, cache=found.cache, headers=headers)
    return Answer(body=found.body, kind=found.kind, cache=found.cache, headers=headers)


def _is_here(current: str, to: str) -> bool:
    """Whether a form leads back to its own page."""
    _, _, rest = current.partition("://")
    return "/" + rest.partition("/")[2].partition("#")[0] == public_path(to)
