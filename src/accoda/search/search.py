"""Ways through a store: by queue name, then state, then id, with bounded work for each part of the way."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from accoda.limits import MOMENT
from accoda.model import STATES, JobInfo, QueueStats, State
from accoda.replays.places import Place
from accoda.search.filter import Fits
from accoda.search.own import kept_by_us
from accoda.storage.protocol import Store

LOOKED_AT = 1000
"""Records that are looked at for one part, however few of them fit its filter."""
LOOKS = 100
"""Questions to the store for one part: a store of thousands of queues is looked through part by part."""
AT_ONCE = 200
ALIVE = ("ready", "delayed", "taken")
"""The states in which a job holds its key."""


class Where(Struct, frozen=True, kw_only=True):
    """Which jobs: None means any. `fits` is asked of each. `key` is what all of them have, where that is known: the one
    that holds it is found at once. Those that were created at `until` or later are not meant."""

    queue: str | None = None
    states: Sequence[State] = STATES
    system: bool = False
    fits: Fits | None = None
    key: str | None = None
    until: int = MOMENT


class Found(Struct):
    """Some of the jobs, and where to go on; None: there are no more."""

    jobs: list[JobInfo]
    next: Place | None = None
    looked_at: int = 0


class Search:
    """One part of the way: up to `limit` jobs."""

    def __init__(self, store: Store, where: Where, limit: int) -> None:
        self.store = store
        self.where = where
        self.limit = limit
        self.looks = 0
        self.found = Found([])

    async def run(self, after: Place | None) -> Found:
        """The next jobs after a place. They may be few, or none, and still have a next part."""
        for place in await self._places(after):
            if not await self._through(place):
                return self.found
        return self.found

    async def _places(self, after: Place | None) -> list[Place]:
        """Where jobs may be, in order, from the cursor on. Of a queue that is named, all states are looked into."""
        if self.where.queue is not None:
            every = [Place(self.where.queue, state) for state in self.where.states]
        else:
            stats = (await self.store.stats()).queues
            hidden = frozenset() if self.where.system else await kept_by_us(self.store, stats)
            names = [name for name in sorted(stats) if name not in hidden]
            every = [
                Place(name, state) for name in names for state in self.where.states if _may_have(stats[name], state)
            ]
        if after is None:
            return every
        rest = [place for place in every if _order(place) > _order(Place(after.queue, after.state))]
        # A cursor of another filter leads on from its place, and not into what is not asked for.
        here = [after] if any(_order(place) == _order(after) for place in every) else []
        return here + rest

    async def _through(self, place: Place) -> bool:
        """Look through one queue's jobs in a state; False: this part ends here."""
        while True:
            left = min(
                LOOKED_AT - self.found.looked_at, AT_ONCE if self.where.fits else self.limit + 1 - len(self.found.jobs)
            )
            if left <= 0 or self.looks >= LOOKS:
                self.found.next = place
                return False
            jobs = await self._look(place, left)
            self.looks += 1
            for job in jobs:
                if job.created_at >= self.where.until and place.state in ALIVE:
                    return True  # by id is by creation: all that follow came later too
                if job.created_at < self.where.until and (self.where.fits is None or self.where.fits(job)):
                    if len(self.found.jobs) == self.limit:
                        self.found.next = place  # there is one more: the next part begins after the last of this one
                        return False
                    self.found.jobs.append(job)
                place = Place(place.queue, place.state, job.id)
                self.found.looked_at += 1
            if len(jobs) < left or self._by_key(place):
                return True

    def _by_key(self, place: Place) -> bool:
        return self.where.key is not None and place.state in ALIVE

    async def _look(self, place: Place, left: int) -> list[JobInfo]:
        if not self._by_key(place):
            return await self.store.browse(place.queue, place.state, place.id or None, left)
        job = (await self.store.peek(place.queue, self.where.key)).job
        return [job] if job is not None and job.state == place.state and job.id > place.id else []


def _may_have(stats: QueueStats, state: State) -> bool:
    # How many finished jobs are kept is not among the counts: those of a queue that ever finished one are looked for.
    return stats.done > 0 if state == "done" else getattr(stats, state) > 0


def _order(place: Place) -> tuple[str, int]:
    return place.queue, STATES.index(place.state)
