"""Which dead letters people mean: a filter as they write it, and what is made of it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accoda.admin import moments
from accoda.admin.requests import Name
from accoda.errors import InvalidInput
from accoda.model import check_queue
from accoda.replays.letters import Wanted


class DeadFilter(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Which dead letters: all that fit everything said here. `after` and `before` are moments of their death."""

    queue: Name | None = None
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")] | None = None
    after: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    before: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    system: bool = False


def wanted(filter: DeadFilter, now: int) -> Wanted:
    """The filter, checked, for those that are dead by now."""
    if filter.queue is not None:
        check_queue(filter.queue)
    if filter.fingerprint is not None and not _is_fingerprint(filter.fingerprint):
        raise InvalidInput("fingerprint", f"must be 12 hex digits, not {filter.fingerprint!r:.60}")
    since = 0 if filter.after is None else moments.read("after", filter.after)
    # The end of the present millisecond, so that what died in it is meant too.
    until = now + 1 if filter.before is None else min(now + 1, moments.read("before", filter.before))
    return Wanted(queue=filter.queue, fingerprint=filter.fingerprint, since=since, until=until, system=filter.system)


def _is_fingerprint(text: str) -> bool:
    return len(text) == 12 and all(letter in "0123456789abcdef" for letter in text)
