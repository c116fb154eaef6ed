"""Fetching ahead: when nothing else waits and there are tokens to spare, what will be wanted soon is fetched now."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.demand.records import Errand, read_cached, write
from accoda.demand.score import PREFETCH
from accoda.errors import InvalidInput, VersionConflict
from accoda.model import NewJob, check_count, check_duration
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.demand.demand import Demand

Upcoming = Callable[[int, int], Iterable[tuple[str, int]] | Awaitable[Iterable[tuple[str, int]]]]
"""Which keys will be wanted between two moments (milliseconds), and when each."""


class Prefetch(Struct, frozen=True, kw_only=True):
    """`upcoming` is asked, every `every` seconds, what will be wanted within the next `look_ahead` seconds. At most
    `most` jobs are made each time, the earliest first, and only as long as the budget keeps `least_left` tokens."""

    upcoming: Upcoming
    look_ahead: float = 1800.0
    most: int = 5
    least_left: int = 10
    every: float = 60.0

    def __post_init__(self) -> None:
        if not callable(self.upcoming):
            raise InvalidInput("upcoming", f"must be a function of two moments, not {self.upcoming!r:.60}")
        check_duration("look_ahead", self.look_ahead)
        check_duration("every", self.every)
        check_count("most", self.most)
        check_count("least_left", self.least_left)

    async def run_once(self, demand: Demand, store: Store) -> int:
        """Make the prefetch jobs of this moment, and give their number. One worker of all does it at a time."""
        if not await self._is_mine(demand, store) or await _is_busy(demand, store):
            return 0
        now = (await store.peek(demand.queue)).at
        found = self.upcoming(now, now + round(self.look_ahead * 1000))
        wanted = await found if inspect.isawaitable(found) else found
        made, spare = 0, await demand.spare()
        for key, due in sorted(wanted, key=lambda item: item[1]):
            cost = demand.cost_of(key)
            if made >= self.most or (spare is not None and spare - cost < self.least_left):
                break
            if await self._make(demand, store, key, due, now):
                made += 1
                spare = None if spare is None else spare - cost
        demand.counters.mine.prefetch_created += made
        return made

    async def _make(self, demand: Demand, store: Store, key: str, due: int, now: int) -> bool:
        since = max(0, due - demand.fresh_ms)  # what is fetched before that moment is not fresh any more when it is due
        if now < since:
            return False
        cached = read_cached((await store.peek(demand.cache_queue, key)).job)
        if cached is not None and cached.fetched_at > since:
            return False
        errand = write(Errand(key, True, since))
        job = NewJob(demand.queue, errand, rank=PREFETCH, cost=demand.cost_of(key), key=key)
        return (await store.enqueue([job]))[0].what == "created"

    async def _is_mine(self, demand: Demand, store: Store) -> bool:
        try:
            await store.write(f"demand/{demand.queue}/prefetcher", b"", version=0, ttl=self.every * 0.9)
            return True
        except VersionConflict:
            return False


async def _is_busy(demand: Demand, store: Store) -> bool:
    stats = (await store.stats()).queues.get(demand.queue)
    return stats is not None and bool(stats.ready or stats.paused)
