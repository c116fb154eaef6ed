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
SHOWN = {"", "queues", "jobs", "dead", "workers", "schedules", "budgets", "demands", "bulk"}
FIRST = frozenset(SHOWN | {"login", "logout", "do", "live", "static"})
_NAME = COOKIE.encode() + b"="


def is_page(path: str) -> bool:
    """Whether a path belongs to the dashboard.

    >>> [is_page(path) for path in ("/", "/jobs/17", "/do/pause", "/api/v1/jobs", "/metrics", "/jobsandmore", "/docs")]
    [True, True, True, False, False, False, False]
    """
    return path[1:].partition("/")[0] in FIRST


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
