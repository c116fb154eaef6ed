"""Login: an API token in a form becomes a cookie that only this service gets, and no script sees."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from accoda.dashboard.answers import Answer, drop, see_other
from accoda.dashboard.calls import is_local
from accoda.dashboard.forms import headers_of, query_of, read_form
from accoda.http.problems import ProblemError
from accoda.http.security.pages import COOKIE

if TYPE_CHECKING:
    from accoda.dashboard.dashboard import Dashboard

Scope = MutableMapping[str, Any]


async def answer(dashboard: Dashboard, scope: Scope, receive: Any) -> Answer:
    """`/login` and `/logout`: the page, or what its form does."""
    method, path = scope["method"], scope["path"]
    if method in ("GET", "HEAD"):
        return _page(dashboard, scope, query_of(scope["query_string"]).get("next", "/"))
    if method != "POST":
        raise ProblemError("method-not-allowed", "log in with a form", headers=(("allow", "GET, HEAD, POST"),))
    form = await read_form(scope, receive)
    if path == "/logout":
        return see_other("/login", (drop(COOKIE),))
    return _enter(dashboard, scope, form)


def _enter(dashboard: Dashboard, scope: Scope, form: dict[str, str]) -> Answer:
    to = form.get("next", "/")
    text, guard = form.get("token", "").strip(), dashboard.guard
    if guard is None or not guard.needs_token():
        return see_other("/")
    try:
        guard.enter(scope, text.encode("utf-8", "replace"))
    except ProblemError as error:
        return _page(dashboard, scope, to, error)
    # A browser tells the scheme of the page in Origin, however many proxies there are between.
    secure = "; Secure" if headers_of(scope).get(b"origin", b"").startswith(b"https://") else ""
    cookie = f"{COOKIE}={text}; Path=/; HttpOnly; SameSite=Strict{secure}"
    return see_other(to if is_local(to) else "/", (cookie,))


def _page(dashboard: Dashboard, scope: Scope, to: str, error: ProblemError | None = None) -> Answer:
    context = {
        "next": to if is_local(to) else "/",
        "wrong": None if error is None else error.problem.detail,
        "open": dashboard.guard is None or not dashboard.guard.needs_token(),
    }
    return dashboard.page(scope, "login.html", context, 200 if error is None else error.problem.status)
