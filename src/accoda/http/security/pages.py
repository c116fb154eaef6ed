"""Which paths are the dashboard's: there, and nowhere else, a cookie counts and a form is read. Pure."""

from __future__ import annotations

from collections.abc import Iterable

COOKIE = "accoda"
FORM = b"application/x-www-form-urlencoded"
LOGIN = "/login"
LOGOUT = "/logout"
STATIC = "/static/"
LARGEST = 256 * 1024
"""Bytes of a form."""
SHOWN = {"", "queues", "jobs", "dead", "workers", "schedules", "flows", "budgets", "demands", "bulk"}
FIRST = frozenset(SHOWN | {"login", "logout", "do", "live", "static"})
_NAME = COOKIE.encode() + b"="


def is_page(method: str, path: str) -> bool:
    """Whether a request belongs to the dashboard. `POST /jobs` does not: it is the API's, so no cookie counts there.

    >>> paths = ("/", "/jobs", "/jobs/17", "/do/pause", "/api/v1/jobs", "/metrics", "/jobsandmore", "/docs")
    >>> [path for path in paths if is_page("GET", path)], is_page("POST", "/jobs")
    (['/', '/jobs', '/jobs/17', '/do/pause'], False)
    """
    return path[1:].partition("/")[0] in FIRST and (path != "/jobs" or method != "POST")


def is_view(path: str) -> bool:
    """Whether a path of the dashboard is a page to look at: no form, file or stream.

    >>> is_view("/jobs/17"), is_view("/do/pause")
    (True, False)
    """
    return path[1:].partition("/")[0] in SHOWN


def wants_json(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a program asks, to which a page says nothing: it sends JSON, or wants JSON and no HTML.

    >>> wants_json([(b"accept", b"application/json, text/plain, */*")]), wants_json([(b"accept", b"*/*")])
    (True, False)
    """
    found = {name: value.lower() for name, value in headers if name in (b"accept", b"content-type")}
    accept, kind = found.get(b"accept", b""), found.get(b"content-type", b"").partition(b";")[0]
    return kind.strip().endswith((b"/json", b"+json")) or (b"json" in accept and b"text/html" not in accept)


def takes_form(path: str) -> bool:
    """Whether a form may be posted there."""
    return path.startswith("/do/") or path in (LOGIN, LOGOUT)


def token_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The token in the cookie; None: there is none. Of several, the first.

    >>> token_of([(b"cookie", b"a=1; accoda=acc_1_x")])
    b'acc_1_x'
    """
    for name, value in headers:
        if name == b"cookie":
            for part in value.split(b";"):
                part = part.strip()
                if part.startswith(_NAME):
                    return part[len(_NAME) :]
    return None
