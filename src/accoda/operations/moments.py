"""Moments as people read and write them (RFC 3339 in UTC with milliseconds), and the storage's clock."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from accoda.errors import InvalidInput
from accoda.model import Head
from accoda.storage.protocol import Inspector
from accoda.times import EPOCH
from accoda.times import rfc3339 as rfc3339  # for its users here

SHAPE = {"format": "date-time", "pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-"}
"""A moment in a JSON schema: none before 1970."""
PROBE = "accoda.clock"
"""A queue that is always empty: looking at its head gives the storage's clock."""


def read(field: str, text: str) -> int:
    """The moment that a text names, in milliseconds.

    >>> read("scheduledAt", "2030-01-01T01:00:00+01:00")
    1893456000000
    >>> read("scheduledAt", "2030-01-01T01:00:00")
    Traceback (most recent call last):
        ...
    accoda.errors.InvalidInput: scheduledAt: needs an offset from UTC; write 2030-01-01T01:00:00Z or …+02:00
    """
    try:
        at = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise InvalidInput(field, f"must be a moment such as 2030-01-01T09:00:00Z, not {text!r:.60}") from None
    if at.tzinfo is None:
        raise InvalidInput(field, f"needs an offset from UTC; write {text:.40}Z or …+02:00")
    moment = (at - EPOCH) // timedelta(milliseconds=1)
    if moment < 0:
        raise InvalidInput(field, f"must be a moment after 1970, not {text!r:.60}")
    return moment


async def now_of(store: Inspector, queue: str = PROBE) -> int:
    """The present moment by the storage's clock (in a cluster, that of the queue's server)."""
    return (await store.look(Head(queue))).at
