"""Dead letters that fit a filter, found piece by piece, so that each piece of work is bounded."""

from __future__ import annotations

from msgspec import Struct

from accoda.fingerprint import fingerprint
from accoda.limits import MOMENT
from accoda.model import JobInfo
from accoda.names import is_system
from accoda.replays.places import Place
from accoda.storage.protocol import Store

AT_ONCE = 500


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
