"""Login: an API token in a form becomes a cookie that only this service gets, and that no script can read."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from accoda.dashboard.answers import Answer, cookie, drop, see_other
from accoda.dashboard.forms import headers_of, query_of, read_form
from accoda.dashboard.routes import is_local
from accoda.http.problems import ProblemError
from accoda.http.security.pages import COOKIE

if TYPE_CHECKING:
    from accoda.http.security.guard import Guard

Scope = MutableMapping[str, Any]


class Host(Protocol):
    """What the login needs of the dashboard."""

    guard: Guard | None

    def page(self, scope: Scope, template: str, context: dict[str, Any], status: int = 200) -> Answer: ...


async def answer(dashboard: Host, scope: Scope, receive: Any) -> Answer:
    """`/login` and `/logout`: the page, or its form."""
    method, path = scope["method"], scope["path"]
    if method in ("GET", "HEAD"):
        return _page(dashboard, scope, query_of(scope["query_string"]).get("next", "/"))
    if method != "POST":
        raise ProblemError("method-not-allowed", "log in with a form", headers=(("allow", "GET, HEAD, POST"),))
    form = await read_form(scope, receive)
    if path == "/logout":
        return see_other("/login", (drop(COOKIE),))
    return _enter(dashboard, scope, form)


def _enter(dashboard: Host, scope: Scope, form: dict[str, str]) -> Answer:
    to = form.get("next", "/")
    text, guard = form.get("token", "").strip(), dashboard.guard
    if guard is None or not guard.needs_token():
        return see_other("/")
    try:
        guard.enter(scope, text.encode("utf-8", "replace"))
    except ProblemError as error:
        return _page(dashboard, scope, to, error)
    # A browser says the scheme of the page in Origin, however many proxies there are in between.
    secure = "; Secure" if headers_of(scope).get(b"origin", b"").startswith(b"https://") else ""
    return see_other(to if is_local(to) else "/", (cookie(COOKIE, text) + secure,))


def _page(dashboard: Host, scope: Scope, to: str, error: ProblemError | None = None) -> Answer:
    context = {
        "next": to if is_local(to) else "/",
        "wrong": None if error is None else error.problem.detail,
        "open": dashboard.guard is None or not dashboard.guard.needs_token(),
    }
    return dashboard.page(scope, "login.html", context, 200 if error is None else error.problem.status)
