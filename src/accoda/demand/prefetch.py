"""Fetching ahead: when no fetch is ready and there are tokens to spare, upcoming keys are fetched now."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct

from accoda.demand.records import DemandContext, FetchPayload, claim, read_cached, stored_key, write
from accoda.demand.score import PREFETCH
from accoda.errors import InvalidInput
from accoda.model import ByKey, Head, NewJob, check_count, check_duration
from accoda.storage.protocol import Store

Upcoming = Callable[[int, int], Iterable[tuple[str, int]] | Awaitable[Iterable[tuple[str, int]]]]
"""The keys that will be wanted between two moments (milliseconds), and when each."""


class Prefetch(Struct, frozen=True, kw_only=True):
    """Every `every` seconds `upcoming` says what will be wanted within the next `look_ahead` seconds. At most `most`
    jobs are made each time, the earliest first, and only while the budget keeps `least_left` tokens."""

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

    async def run_once(self, demand: DemandContext, store: Store) -> int:
        """Make the prefetch jobs of this moment, and give their number. Only one worker does it at a time."""
        if not await claim(store, f"demand/{demand.queue}/prefetcher", self.every):
            return 0
        stats = (await store.stats()).queues.get(demand.queue)
        if stats is not None and (stats.ready or stats.paused):
            return 0
        now = (await store.look(Head(demand.queue))).at
        found = self.upcoming(now, now + round(self.look_ahead * 1000))
        wanted = await found if inspect.isawaitable(found) else found
        made, available = 0, await demand.available()
        for key, due in sorted(wanted, key=lambda item: item[1]):
            cost = demand.cost_of(key)
            if made >= self.most or (available is not None and available - cost < self.least_left):
                break
            if await self._make(demand, store, key, due, now):
                made += 1
                available = None if available is None else available - cost
        demand.counters.mine.prefetch_created += made
        return made

    async def _make(self, demand: DemandContext, store: Store, key: str, due: int, now: int) -> bool:
        since = max(0, due - demand.fresh_ms)  # a result fetched before this moment is no longer fresh when it is due
        if now < since:
            return False
        name = stored_key(key)
        cached = read_cached((await store.look(ByKey(demand.cache_queue, name))).job)
        if cached is not None and cached.fetched_at > since:
            return False
        payload = write(FetchPayload(key, True, since))
        job = NewJob(demand.queue, payload, rank=PREFETCH, cost=demand.cost_of(key), key=name)
        return (await store.enqueue([job]))[0].what == "created"
