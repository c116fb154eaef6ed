"""What people write for a moment or a length of time, turned into what storages keep."""

from __future__ import annotations

from datetime import datetime, timedelta

from accoda.errors import InvalidInput
from accoda.model import check_duration, check_moment


def seconds(field: str, value: float | timedelta) -> float:
    """A length in seconds.

    >>> seconds("delay", timedelta(minutes=2))
    120.0
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    check_duration(field, value)
    return value


def milliseconds(field: str, value: datetime | int) -> int:
    """A moment in milliseconds since the epoch.

    >>> from datetime import UTC
    >>> milliseconds("at", datetime(2030, 1, 1, tzinfo=UTC))
    1893456000000
    >>> milliseconds("at", datetime(2030, 1, 1))
    Traceback (most recent call last):
        ...
    accoda.errors.InvalidInput: at: a datetime needs a time zone; write datetime(…, tzinfo=UTC) or .astimezone()
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInput(field, "a datetime needs a time zone; write datetime(…, tzinfo=UTC) or .astimezone()")
        value = round(value.timestamp() * 1000)
    check_moment(field, value)
    return value
