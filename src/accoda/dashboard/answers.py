"""The answers of the dashboard, at the level of ASGI: pages with their policy, redirects, files, errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct

from accoda.http.prefix import prefix, public_path

Headers = list[tuple[bytes, bytes]]

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""On everything. The referrer stays within the service: an address may hold what was searched for. It is not
`no-referrer`, with which browsers send `Origin: null` for our own forms, which would be refused."""
HTML = "text/html; charset=utf-8"
SAID = "accoda-said"
MOST_SAID = 1000


class Answer(Struct, frozen=True, kw_only=True):
    """An answer. `cookies` are whole values of Set-Cookie."""

    status: int = 200
    body: bytes = b""
    kind: str = HTML
    cache: str = "no-store"
    headers: tuple[tuple[str, str], ...] = ()
    cookies: tuple[str, ...] = ()

    def raw_headers(self) -> Headers:
        pairs: Headers = [(b"content-type", self.kind.encode()), (b"content-length", b"%d" % len(self.body))]
        if self.status == 304:
            pairs = []
        pairs.append((b"cache-control", self.cache.encode()))
        pairs += SAFE
        pairs += [(name.encode(), value.encode("latin-1")) for name, value in self.headers]
        pairs += [(b"set-cookie", cookie.encode("latin-1")) for cookie in self.cookies]
        return pairs


def html(
    text: str, status: int = 200, *, headers: Iterable[tuple[str, str]] = (), cookies: tuple[str, ...] = ()
) -> Answer:
    """A page."""
    return Answer(status=status, body=text.encode("utf-8", "replace"), headers=tuple(headers), cookies=cookies)


def see_other(to: str, cookies: tuple[str, ...] = ()) -> Answer:
    """Redirect to another page, with GET. `to` is a path of ours."""
    return Answer(status=303, headers=(("location", public_path(to)),), cookies=cookies)


def htmx_to(to: str, status: int = 200, cookies: tuple[str, ...] = ()) -> Answer:
    """Let htmx, which has sent a form, load another page. `to` is a path of ours."""
    return Answer(status=status, headers=(("hx-redirect", public_path(to)),), cookies=cookies)


def saying(message: str) -> str:
    """A cookie that carries a sentence to the next page, which shows it and drops it."""
    return cookie(SAID, quote(message[:MOST_SAID], safe=""), 30)


def said(cookies: dict[str, str]) -> str:
    """The sentence from the page before."""
    return unquote(cookies.get(SAID, ""), errors="replace")[:MOST_SAID]


def drop(name: str) -> str:
    """A cookie that removes another."""
    return cookie(name, "", 0)


def cookie(name: str, value: str, max_age: int | None = None) -> str:
    """A cookie that no script gets, and no other part of an application that the service is mounted in."""
    lasts = "" if max_age is None else f"Max-Age={max_age}; "
    return f"{name}={value}; Path={prefix.get() or '/'}; {lasts}HttpOnly; SameSite=Strict"


async def send_answer(send: Any, answer: Answer) -> None:
    """Send it all."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.raw_headers()})
    await send({"type": "http.response.body", "body": answer.body})
