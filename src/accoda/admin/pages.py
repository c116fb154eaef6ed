"""Pages of jobs: by queue name, then state, then id, with bounded work for each page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.admin import cursors
from accoda.admin.cursors import Place
from accoda.admin.names import is_system
from accoda.admin.views import JobView, Page
from accoda.errors import InvalidInput
from accoda.model import STATES, JobInfo, QueueStats, State, check_queue, check_state

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.storage.protocol import Store

MOST = 1000
"""Jobs of one page."""
LOOKED_AT = 2000
"""Records that are looked at for one page, however few of them fit its filter."""
LOOKS = 100
"""Questions to the store for one page: a store of thousands of queues is looked through page by page."""
AT_ONCE = 200

Fits = Callable[[JobInfo], bool]


class Where(Struct, frozen=True, kw_only=True):
    """Which jobs: None means any. `fits` is asked of each."""

    queue: str | None = None
    states: Sequence[State] = STATES
    system: bool = False
    fits: Fits | None = None


async def page(app: App, where: Where, limit: int, cursor: str | None) -> Page[JobView]:
    """The next jobs after a cursor. A page may be short, or even empty, and still have a next one."""
    check_limit(limit)
    if where.queue is not None:
        check_queue(where.queue)
    for state in where.states:
        check_state(state)
    after = None if cursor is None else cursors.decode(cursor)
    store = await app.connections.get()
    found = await _Search(store, where, limit).run(after)
    next_cursor = None if found.next is None else cursors.encode(found.next)
    return Page([JobView.of(app, job) for job in found.jobs], next_cursor)


def check_limit(limit: int) -> None:
    """Refuse a size that no page has."""
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise InvalidInput("limit", f"must be an integer from 1 to {MOST}, not {limit!r:.60}")


class _Found(Struct):
    jobs: list[JobInfo]
    next: Place | None = None


class _Search:
    """One page's way through the store."""

    def __init__(self, store: Store, where: Where, limit: int) -> None:
        self.store = store
        self.where = where
        self.limit = limit
        self.looked_at = 0
        self.looks = 0
        self.found = _Found([])

    async def run(self, after: Place | None) -> _Found:
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
            names = [name for name in sorted(stats) if self.where.system or not is_system(name)]
            every = [
                Place(name, state) for name in names for state in self.where.states if _may_have(stats[name], state)
            ]
        if after is None:
            return every
        rest = [place for place in every if _order(place) > _order(Place(after.queue, after.state))]
        here = [after] if self._is_asked_for(after) else []
        return here + rest

    def _is_asked_for(self, after: Place) -> bool:
        """A cursor of another filter leads on from its place, and not into what is not asked for."""
        where = self.where
        return (
            (where.queue is None or after.queue == where.queue)
            and after.state in where.states
            and (where.system or where.queue is not None or not is_system(after.queue))
        )

    async def _through(self, place: Place) -> bool:
        """Look through one queue's jobs in a state; False: the page ends here."""
        while True:
            left = min(
                LOOKED_AT - self.looked_at, AT_ONCE if self.where.fits else self.limit + 1 - len(self.found.jobs)
            )
            if left <= 0 or self.looks >= LOOKS:
                self.found.next = place
                return False
            jobs = await self.store.browse(place.queue, place.state, place.id or None, left)
            self.looks += 1
            for job in jobs:
                if self.where.fits is None or self.where.fits(job):
                    if len(self.found.jobs) == self.limit:
                        self.found.next = place  # there is one more: the next page begins after the last of this one
                        return False
                    self.found.jobs.append(job)
                place = Place(place.queue, place.state, job.id)
            self.looked_at += len(jobs)
            if len(jobs) < left:
                return True


def _may_have(stats: QueueStats, state: State) -> bool:
    # How many finished jobs are kept is not among the counts: those of a queue that ever finished one are looked for.
    return stats.done > 0 if state == "done" else getattr(stats, state) > 0


def _order(place: Place) -> tuple[str, int]:
    return place.queue, STATES.index(place.state)
