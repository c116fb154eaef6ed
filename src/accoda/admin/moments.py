"""Moments as people read and write them: RFC 3339 in UTC with milliseconds, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from accoda.errors import InvalidInput

SHAPE = {"format": "date-time", "pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-"}
"""A moment as a JSON schema says it: none before 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 253_402_300_799_999
"""The end of the year 9999, beyond which no calendar of ours goes."""


def shown(moment: int | None) -> str | None:
    """A moment as text.

    >>> shown(1893456000000)
    '2030-01-01T00:00:00.000Z'
    """
    if moment is None:
        return None
    at = _EPOCH + timedelta(milliseconds=max(0, min(moment, _LAST)))
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read(field: str, text: str) -> int:
    """The moment that a text names, in milliseconds.

    >>> read("scheduledAt", "2030-01-01T01:00:00+01:00")
    1893456000000
    >>> read("scheduledAt", "2030-01-01T01:00:00")
    Traceback (most recent call last):
        ...
    accoda.errors.InvalidInput: scheduledAt: needs an offset, because without it nobody knows which hour is meant; \
write 2030-01-01T01:00:00Z or …+02:00
    """
    try:
        at = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise InvalidInput(field, f"must be a moment such as 2030-01-01T09:00:00Z, not {text!r:.60}") from None
    if at.tzinfo is None:
        raise InvalidInput(
            field,
            f"needs an offset, because without it nobody knows which hour is meant; write {text:.40}Z or …+02:00",
        )
    moment = (at - _EPOCH) // timedelta(milliseconds=1)
    if moment < 0:
        raise InvalidInput(field, f"must be a moment after 1970, not {text!r:.60}")
    return moment
