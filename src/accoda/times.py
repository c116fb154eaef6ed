"""Moments and lengths of time: from what people write to what storages keep, and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import overload

from accoda.errors import InvalidInput
from accoda.model import check_duration, check_moment

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 253_402_300_799_999
"""The end of the year 9999, the last that `datetime` knows."""


def seconds(field: str, value: float | timedelta) -> float:
    """A length in seconds.

    >>> seconds("delay", timedelta(minutes=2))
    120.0
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    check_duration(field, value)
    return value


def read_length(text: str) -> float | None:
    """The seconds of a written length such as "90", "90s", "1h30m" or "500ms"; None if it is not one.

    >>> read_length("1h30m"), read_length("0.5"), read_length("2 days")
    (5400.0, 0.5, None)
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    match = _LENGTH.fullmatch(text)
    if match is None or not text:
        return None
    parts = zip(match.groups(), _UNITS.values(), strict=True)
    return sum(float(number) * unit for number, unit in parts if number) / 1000


def milliseconds(field: str, value: datetime | int) -> int:
    """A moment in milliseconds since the epoch.

    >>> from datetime import UTC
    >>> milliseconds("at", datetime(2030, 1, 1, tzinfo=UTC))
    1893456000000
    >>> milliseconds("at", datetime(2030, 1, 1))
    Traceback (most recent call last):
        ...
    accoda.errors.InvalidInput: at: a datetime needs a time zone; write datetime(…, tzinfo=UTC) or .astimezone()
    >>> milliseconds("now", "2030")
    Traceback (most recent call last):
        ...
    accoda.errors.InvalidInput: now: must be a datetime, or integer milliseconds since the epoch, not '2030'
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInput(field, "a datetime needs a time zone; write datetime(…, tzinfo=UTC) or .astimezone()")
        value = round(value.timestamp() * 1000)
    elif type(value) is not int:
        raise InvalidInput(field, f"must be a datetime, or integer milliseconds since the epoch, not {value!r:.60}")
    check_moment(field, value)
    return value


@overload
def rfc3339(moment: int) -> str: ...
@overload
def rfc3339(moment: int | None) -> str | None: ...


def rfc3339(moment: int | None) -> str | None:
    """A moment in milliseconds as text.

    >>> rfc3339(1893456000000)
    '2030-01-01T00:00:00.000Z'
    """
    if moment is None:
        return None
    at = EPOCH + timedelta(milliseconds=max(0, min(moment, _LAST)))
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_LENGTH = re.compile(r"\s*".join(rf"(?:({_NUMBER.pattern}){unit})?" for unit in _UNITS))
