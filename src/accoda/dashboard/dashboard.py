"""The dashboard as an ASGI application: from a path to a page, an action, a file or a stream."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from accoda.clock import SystemClock
from accoda.dashboard import login
from accoda.dashboard.answers import SAID, Answer, drop, html, said, saying, see_other, send_answer
from accoda.dashboard.calls import ActionCall, PageCall, Viewer
from accoda.dashboard.files import files
from accoda.dashboard.forms import cookies_of, headers_of, query_of, read_form
from accoda.dashboard.live import Hub, stream
from accoda.dashboard.render import Frame, Renderer
from accoda.dashboard.routes import Found, PageRoute, actions, pages, split
from accoda.http.call import ANYBODY
from accoda.http.problems import ProblemError, from_error
from accoda.http.security.pages import COOKIE

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.http.options import ServiceOptions
    from accoda.http.polls import Polls
    from accoda.http.security.guard import Guard

log = logging.getLogger("accoda.dashboard")

Scope = MutableMapping[str, Any]
LOOKS = ("GET", "HEAD")


class Dashboard:
    """Answers every path that `accoda.http.security.pages` calls a page's."""

    def __init__(self, app: App, options: ServiceOptions, polls: Polls) -> None:
        self.app = app
        self.polls = polls
        self.read_only = bool(getattr(options.policy, "read_only", False))
        self._clock = app.connections.clock or SystemClock()
        self._render = Renderer(self._clock)
        self.hub = Hub(self._live_part)
        self.guard: Guard | None = None

    def meet(self, guard: Guard) -> None:
        """Know who knows the tokens, and say his refusals as pages."""
        self.guard = guard
        guard.as_page = self._refusal

    def warm(self) -> None:
        """Make ready what the first page needs, beside whatever else goes on. Nothing waits for it."""
        threading.Thread(target=self._render.warm, name="accoda-templates", daemon=True).start()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        path = scope["path"]
        try:
            if path == "/live" and scope["method"] in LOOKS:
                await stream(self, scope, receive, send)
                return
            answer = await self._answer(scope, receive, path)
        except Exception as error:
            answer = self._problem(scope, from_error(error))
        await send_answer(send, answer)

    async def nowhere(self, scope: Scope, send: Any) -> None:
        """Who types an address that leads nowhere into a browser gets a page, too."""
        error = ProblemError("not-found", "there is no such page; the links above lead to all that there are")
        await send_answer(send, self._problem(scope, error))

    async def _answer(self, scope: Scope, receive: Any, path: str) -> Answer:
        method = scope["method"]
        if path.startswith("/static/"):
            return _file(scope, path.removeprefix("/static/"))
        if path in ("/login", "/logout"):
            return await login.answer(self, scope, receive)
        if path.startswith("/do/"):
            if method != "POST":
                raise ProblemError("method-not-allowed", "an action is a form", headers=(("allow", "POST"),))
            return await self._act(scope, receive, path)
        if method not in LOOKS:
            raise ProblemError("method-not-allowed", "a page is looked at", headers=(("allow", "GET, HEAD"),))
        return await self._page(scope, path)

    # -- pages

    async def _page(self, scope: Scope, path: str) -> Answer:
        found = pages().find(path)
        if found is None:
            raise ProblemError("not-found", "there is no page at this address")
        if (instead := self.kept_out(scope, found.route.scope)) is not None:
            return instead
        began, before = time.perf_counter(), said(cookies_of(headers_of(scope)))
        call = self.page_call(who_of(scope), path, query_of(scope["query_string"]), found)
        context = await found.route.view(call)
        text = self._render(found.route.template, self.frame(scope, found.route.section, before), context)
        took = (time.perf_counter() - began) * 1000
        return html(text, headers=(("server-timing", f"page;dur={took:.1f}"),), cookies=(drop(SAID),) if before else ())

    def page_call(self, who: Viewer, path: str, query: dict[str, str], found: Found[PageRoute]) -> PageCall:
        """What a view is given."""
        return PageCall(
            app=self.app,
            who=who,
            path=path,
            query=query,
            params=found.params,
            now=self._clock.now(),
            read_only=self.read_only,
        )

    def frame(self, scope: Scope, section: str = "", message: str = "") -> Frame:
        """What stands around a page."""
        who, query = who_of(scope), scope["query_string"].decode("latin-1")
        return Frame(
            back=quote(scope["path"]) + (f"?{query}" if query else ""),
            section=section,
            name=who.name if getattr(who, "id", None) is not None else "",
            known=getattr(who, "id", None) is not None,
            may_change=who.may("admin") and not self.read_only,
            read_only=self.read_only,
            said=message,
            now=self._clock.now(),
        )

    def page(self, scope: Scope, template: str, context: dict[str, Any], status: int = 200) -> Answer:
        """A page that is in no table."""
        return html(self._render(template, self.frame(scope), context), status)

    def kept_out(self, scope: Scope, needed: str) -> Answer | None:
        """What somebody gets who may not see a page: the login, if he showed no token at all."""
        who = who_of(scope)
        if who.may(needed):
            return None
        if getattr(who, "id", None) is not None:
            raise ProblemError("forbidden", f"your token does not have the scope {needed!r}", scope=needed)
        headers = headers_of(scope)
        if b"hx-request" in headers:
            return Answer(status=401, headers=(("hx-redirect", "/login"),))
        to = self.frame(scope).back if scope["method"] in LOOKS else "/"
        stale = (drop(COOKIE),) if COOKIE in cookies_of(headers) else ()
        return see_other("/login" if to == "/" else f"/login?next={quote(to, safe='')}", stale)

    async def _live_part(self, address: str, who: Viewer) -> str:
        """The part of a page that lives, for all who have the rights of `who`."""
        path, query = split(address)
        found = pages().find(path)
        if found is None or not who.may(found.route.scope) or not self._render.has(found.route.live):
            raise ProblemError("not-found", "this page does not live")
        context = await found.route.view(self.page_call(who, path, query_of(query.encode()), found))
        frame = Frame(
            back=address,
            section=found.route.section,
            may_change=who.may("admin") and not self.read_only,
            read_only=self.read_only,
            now=self._clock.now(),
        )
        return self._render(found.route.live, frame, context)

    async def may_stay(self, scope: Scope) -> bool:
        """Whether a stream may go on: the token with which it began may be revoked by now."""
        return self.guard is None or await self.guard.still(scope)

    # -- actions

    async def _act(self, scope: Scope, receive: Any, path: str) -> Answer:
        found, who = actions().find(path), who_of(scope)
        if found is None:
            raise ProblemError("not-found", "there is no such action")
        if self.read_only:
            raise ProblemError("forbidden", "this service is read-only: it was started with --read-only")
        form = await read_form(scope, receive)
        if (instead := self.kept_out(scope, found.route.scope)) is not None:
            return instead
        call = ActionCall(app=self.app, who=who, path=path, form=form, params=found.params, now=self._clock.now())
        went = await found.route.action(call)
        log.info("%s: %s: %s", who.name, path, went.message)
        self.hub.poke()
        headers = headers_of(scope)
        if b"hx-request" not in headers:
            return see_other(went.to, (saying(went.message),) if went.message else ())
        if _is_here(headers.get(b"hx-current-url", b"").decode("latin-1"), went.to):
            return html(self._render("said.html", self.frame(scope, message=went.message)))
        return Answer(headers=(("hx-redirect", went.to),), cookies=(saying(went.message),) if went.message else ())

    # -- trouble

    def _problem(self, scope: Scope, error: ProblemError) -> Answer:
        """What is wrong, as a page, or as a line on the page that asked."""
        problem, headers = error.problem, headers_of(scope)
        if b"hx-request" not in headers:
            text = self._render("problem.html", self.frame(scope), {"problem": problem})
            return html(text, problem.status, headers=error.headers)
        if problem.status == 401:
            return Answer(status=401, headers=(("hx-redirect", "/login"),))
        text = self._render("said.html", self.frame(scope, message=problem.detail), {"wrong": True})
        return html(text, problem.status, headers=error.headers)

    def _refusal(self, scope: Scope, error: ProblemError) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        answer = self._problem(scope, error)
        return answer.status, answer.raw_headers(), answer.body


def who_of(scope: Scope) -> Viewer:
    """Who asks; where no guard stands before the service, anybody."""
    who: Viewer = scope.get("accoda.who", ANYBODY)
    return who


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
    """Whether a form leads back to the page that it was on."""
    _, _, rest = current.partition("://")
    return "/" + rest.partition("/")[2].partition("#")[0] == to
