"""Dead letters that fit a filter, found piece by piece, so that each piece of work is bounded."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accoda.admin import moments
from accoda.admin.cursors import Place
from accoda.admin.fingerprint import fingerprint
from accoda.admin.names import is_system
from accoda.admin.requests import Name
from accoda.errors import InvalidInput
from accoda.limits import MOMENT
from accoda.model import JobInfo, check_queue
from accoda.storage.protocol import Store

AT_ONCE = 500


class DeadFilter(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Which dead letters: all that fit everything said here. `after` and `before` are moments of their death."""

    queue: Name | None = None
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")] | None = None
    after: Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})] | None = None
    before: Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})] | None = None
    system: bool = False


class Wanted(Struct, frozen=True, kw_only=True):
    """A filter that was checked. What died at `until` or later is not meant: it died while we were at it."""

    queue: str | None = None
    fingerprint: str | None = None
    since: int = 0
    until: int = MOMENT
    system: bool = False

    def fits(self, job: JobInfo) -> bool:
        ended = job.ended_at or 0
        return self.since <= ended < self.until and (
            self.fingerprint is None or fingerprint(job.reason or "") == self.fingerprint
        )


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


class Gathered(Struct, frozen=True):
    """Some of the jobs, and where to go on; None: there are no more."""

    jobs: list[JobInfo]
    next: Place | None
    looked_at: int = 0


async def gather(store: Store, wanted: Wanted, after: Place | None, most: int, look: int) -> Gathered:
    """Up to `most` dead letters that fit, by queue and id, from a place on; at most `look` records are looked at.

    To go on by id means that each is met once: one that could not be revived, or has died again, is not met again.
    """
    jobs: list[JobInfo] = []
    looked_at = 0
    for place in await _places(store, wanted, after):
        while True:
            part = min(AT_ONCE, look - looked_at, most - len(jobs) if wanted.fingerprint is None else AT_ONCE)
            if part <= 0 or len(jobs) >= most:
                return Gathered(jobs, place, looked_at)
            found = await store.browse(place.queue, "dead", place.id or None, part)
            for job in found:
                if len(jobs) == most:
                    return Gathered(jobs, place, looked_at)
                looked_at += 1
                place = Place(place.queue, "dead", job.id)
                if wanted.fits(job):
                    jobs.append(job)
            if len(found) < part:
                break
    return Gathered(jobs, None, looked_at)


async def dead_queues(store: Store, wanted: Wanted) -> list[str]:
    """The queues that may have some of them, by name."""
    if wanted.queue is not None:
        return [wanted.queue]
    stats = (await store.stats()).queues
    return [name for name in sorted(stats) if stats[name].dead and (wanted.system or not is_system(name))]


async def _places(store: Store, wanted: Wanted, after: Place | None) -> list[Place]:
    queues = await dead_queues(store, wanted)
    if after is None:
        return [Place(name, "dead") for name in queues]
    return [after] + [Place(name, "dead") for name in queues if name > after.queue]


def _is_fingerprint(text: str) -> bool:
    return len(text) == 12 and all(letter in "0123456789abcdef" for letter in text)
