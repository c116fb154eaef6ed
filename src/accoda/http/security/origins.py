"""From which pages requests may come. Pure.

A page of another site can make a browser send requests here (CSRF). It cannot hide where it comes from: the browser
says it in Origin and Sec-Fetch-Site. What changes something is refused if it comes from elsewhere. Looks are
answered, but the browser does not show the answer to a page whose origin was not allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from accoda.errors import InvalidInput
from accoda.http.problems import ProblemError
from accoda.http.security.answers import Header
from accoda.http.security.hosts import Authority, read_authority
from accoda.http.security.refusals import foreign_origin

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
PORTS = {b"http": 80, b"https": 443}
VARY: Header = (b"vary", b"origin")
PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type, idempotency-key, if-match"),
    (b"access-control-max-age", b"600"),
)
EXPOSED: Header = (b"access-control-expose-headers", b"location, retry-after, www-authenticate, etag")


class Origins:
    """Judges where a request comes from; `allowed` are origins such as https://jobs.example.com."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(_checked(origin) for origin in allowed)

    def check(self, method: str, headers: Mapping[bytes, bytes]) -> ProblemError | None:
        """Refuse what would change something and comes from a page of another origin.

        Without Origin and Sec-Fetch-Site it comes from no current browser, so no user's browser is being abused.
        """
        if method in SAFE:
            return None
        origin = headers.get(b"origin")
        if origin is None:
            site = headers.get(b"sec-fetch-site")
            good = site is None or site in (b"same-origin", b"none")
            return None if good else foreign_origin("unnamed")
        if self.allows(origin) or is_same(origin, headers.get(b"host", b"")):
            return None
        return foreign_origin(origin.decode("latin-1"))

    def allows(self, origin: bytes | None) -> bool:
        """Whether pages of this origin were let in by name."""
        return origin is not None and bool(self._allowed) and origin.lower() in self._allowed

    def headers(self, origin: bytes | None) -> tuple[Header, ...]:
        """What lets a page see an answer. Where origins are allowed at all, caches must keep answers apart by them."""
        if origin is not None and self.allows(origin):
            return ((b"access-control-allow-origin", origin), EXPOSED, VARY)
        return (VARY,) if self._allowed else ()

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> tuple[Header, ...] | ProblemError | None:
        """The answer to the browser's question before a request; None: it is no such question."""
        if method != "OPTIONS" or b"access-control-request-method" not in headers or b"origin" not in headers:
            return None
        origin = headers[b"origin"]
        return (*self.headers(origin), *PREFLIGHT) if self.allows(origin) else foreign_origin(origin.decode("latin-1"))


def is_same(origin: bytes, host: bytes) -> bool:
    """Whether a page's origin is this service, by the name under which it was reached.

    A Host without a port means the port of the origin's scheme: a proxy may speak https for us.

    >>> is_same(b"http://localhost:8000", b"localhost:8000"), is_same(b"http://localhost:3000", b"localhost:8000")
    (True, False)
    """
    scheme, _, rest = origin.partition(b"://")
    if scheme not in PORTS:
        return False
    if rest == host and host:
        return True
    page, here = read_authority(rest), read_authority(host)
    return page is not None and here is not None and _full(page, scheme) == _full(here, scheme)


def is_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a form was sent from a page of this service.

    Without a word about that it is not: every browser says it, and only browsers send forms.

    >>> is_own_page({b"origin": b"http://localhost:8000", b"host": b"localhost:8000"}), is_own_page({b"host": b"a"})
    (True, False)
    """
    origin = headers.get(b"origin")
    if origin is not None:
        return is_same(origin, headers.get(b"host", b""))
    return headers.get(b"sec-fetch-site") == b"same-origin"


def _full(authority: Authority, scheme: bytes) -> tuple[str, int]:
    return authority.name, PORTS[scheme] if authority.port is None else authority.port


def _checked(text: str) -> bytes:
    raw = text.encode("utf-8", "replace").lower().removesuffix(b"/")
    scheme, _, rest = raw.partition(b"://")
    if scheme not in PORTS or read_authority(rest) is None:
        raise InvalidInput(
            "allow-origin", f"must be such as https://jobs.example.com or http://localhost:3000, not {text!r:.80}"
        )
    return raw
