"""The headers that every answer has. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Header = tuple[bytes, bytes]

NO_GUESS: Header = (b"x-content-type-options", b"nosniff")
NO_STORE: Header = (b"cache-control", b"no-store")
OWN: Header = (b"cross-origin-resource-policy", b"same-origin")
DATA: tuple[Header, ...] = (NO_GUESS, NO_STORE, OWN)
"""On JSON, unless it says otherwise itself. With nosniff no browser takes it for a page, so it needs no more."""
PAGES: tuple[Header, ...] = (
    *DATA,
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
"""On everything else."""
_JSON = (b"application/json", b"application/problem+json")


def with_defaults(headers: Iterable[Header], extra: tuple[Header, ...] = ()) -> list[Header]:
    """The headers of an answer, with those that every answer has, and `extra`.

    >>> with_defaults([(b"content-type", b"application/json"), NO_STORE])[2:] == [NO_GUESS, OWN]
    True
    """
    found = list(headers)
    # Nearly every answer comes from an endpoint, which has these in this order: nothing to look for.
    if len(found) >= 4 and found[0][1] in _JSON and found[2] == NO_STORE and found[3] == NO_GUESS:
        found.append(OWN)
    else:
        names = {name for name, _ in found}
        is_json = (b"content-type", _JSON[0]) in found or (b"content-type", _JSON[1]) in found
        found += [header for header in (DATA if is_json else PAGES) if header[0] not in names]
    found += extra
    return found
