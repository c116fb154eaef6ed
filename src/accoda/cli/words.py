"""Moments and lengths of time in words, and back. Pure."""

from __future__ import annotations

import re
from datetime import datetime

from accoda.errors import InvalidInput
from accoda.operations import words

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|min|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(rf"{_PART.pattern}(?: ?{_PART.pattern})*", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def moment(value: str | int) -> int:
    """A moment in milliseconds, from what a record says: RFC 3339 text, or milliseconds already.

    >>> moment("2023-11-14T22:13:20.000Z")
    1700000000000
    """
    if isinstance(value, int):
        return value
    return round(datetime.fromisoformat(value).timestamp() * 1000)


def ago(value: str | int | None, now: int) -> str:
    """A moment, seen from now.

    >>> now = 1_700_000_000_000
    >>> ago(now + 10_800_000, now), ago("2023-11-14T22:11:20Z", now), ago(now, now), ago(None, now)
    ('in 3 h', '2 min ago', 'now', '')
    """
    return "" if value is None else words.ago(moment(value), now)


def stamp(value: str | int) -> str:
    """A moment by the calendar, in UTC.

    >>> stamp(1_700_000_000_000)
    '2023-11-14 22:13:20 UTC'
    """
    return words.stamp(moment(value))


def read_length(field: str, text: str) -> float:
    """Seconds, from `90`, `5m`, `1h30m`, `250ms`.

    >>> read_length("delay", "1h 30m"), read_length("delay", "90")
    (5400.0, 90.0)
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _WHOLE.fullmatch(text):
        raise InvalidInput(field, f"must be a length of time such as 90, 5m, 1h30m or 2d, not {text!r:.60}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def read_moment(field: str, text: str) -> int:
    """Milliseconds, from an RFC 3339 text; without a zone it is the time of this machine.

    >>> read_moment("at", "2023-11-14T22:13:20Z")
    1700000000000
    """
    try:
        return round(datetime.fromisoformat(text.strip()).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(field, f"must be a moment such as 2030-01-31T09:00:00Z, not {text!r:.60}") from None
