"""The fetch of a demand: one run serves all who wait, and its end is one atomic step.

    opening   look at the cache and at who waits: is the call still needed?
    run       the user's function
    ending    Done, with the cached result and one delivery for each waiter as follow-ups

`Done(waiters=n)` is refused when somebody joined or left after the waiters were read, and `ending` then reads them
again. So nobody who was told "attached" is forgotten, and nobody who has left is served.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from accoda.demand.records import Cached, Errand, RecordCodec, read_cached
from accoda.demand.waiters import Entry, present, read_entries
from accoda.errors import BuryJob, InvalidInput
from accoda.model import Bury, Done, Job, Lease, Outcome
from accoda.payload import UnreadablePayload, encode_result
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.demand.demand import Demand

Source = Literal["api", "cache", "nobody"]

_OPEN_FOR = 5000
"""Milliseconds for which a result serves those who come although its fetch has not ended: should the worker die now."""
_REMEMBERED = 1000


class Start(Struct, frozen=True):
    """What a run is told: fetch `key`; or, with `instead`, that there is no need to. `at` is the storage's moment."""

    key: str
    at: int
    prefetch: bool = False
    instead: Cached | None = None
    nobody: bool = False


class Fetched(Struct, frozen=True, array_like=True):
    """What a run gives to `ending`."""

    key: str
    at: int
    prefetch: bool
    source: Source
    result: bytes = b""


def plan(errand: Errand, waiters: Mapping[str, Entry], cached: Cached | None, at: int, fresh_for: int) -> Start:
    """Whether a call is needed. It is not when all have left, nor when a fetch that ended between somebody's look into
    the cache and his joining has left what everybody here would take."""
    start = Start(errand.key, at, errand.prefetch)
    if not waiters and not errand.prefetch:
        return msgspec.structs.replace(start, nobody=True)
    if cached is None or at - cached.fetched_at >= fresh_for:
        return start
    asked = max([errand.fresh_after, *(entry.fresh_after or 0 for entry in waiters.values())])
    return start if cached.fetched_at < asked else msgspec.structs.replace(start, instead=cached)


class FetchCodec(RecordCodec):
    """The payload of a fetch, with what `opening` found out about it."""

    def __init__(self) -> None:
        super().__init__(Errand)
        self.starts: dict[Lease, Start] = {}

    def open(self, job: Job) -> Start:
        start = self.starts.pop(job.lease, None)
        if start is None:
            self.decode(job.data)  # says what is wrong with it
            raise UnreadablePayload("the payload is no fetch of a demand")
        return start


class Fetching:
    """The rites of a demand's fetch jobs."""

    def __init__(self, demand: Demand, codec: FetchCodec) -> None:
        self._demand = demand
        self._codec = codec
        self._fetched: dict[Lease, Fetched] = {}

    async def opening(self, store: Store, jobs: Sequence[Job]) -> None:
        self._codec.starts.clear()  # what an earlier take left: jobs that were buried before they ran
        starts = await asyncio.gather(*(self._start(store, job) for job in jobs))
        self._codec.starts.update((start[0], start[1]) for start in starts if start is not None)

    async def _start(self, store: Store, job: Job) -> tuple[Lease, Start] | None:
        try:
            errand = self._codec.decode(job.data)
        except UnreadablePayload:
            return None
        look, stored = await asyncio.gather(store.peek(self._demand.cache_queue, errand.key), store.waiters(job.lease))
        waiters = present(read_entries(stored))
        return job.lease, plan(errand, waiters, read_cached(look.job), look.at, self._demand.fresh_ms)

    async def ending(self, store: Store, outcomes: Sequence[Outcome]) -> list[Outcome]:
        return list(await asyncio.gather(*(self._end(store, outcome) for outcome in outcomes)))

    async def _end(self, store: Store, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Done):
            return outcome
        fetched = _fetched.decode(outcome.result or b"")
        try:
            if outcome.lease in self._fetched and fetched.source == "api":
                await self._publish(store, fetched)
            self._remember(outcome.lease, fetched)
            stored = await store.waiters(outcome.lease)
            then = [*outcome.then, *self._demand.follow_ups(fetched, present(read_entries(stored)).values())]
        except InvalidInput as error:  # the result is more than a job may hold: to fetch it again would not change that
            return Bury(outcome.lease, f"result: {error}")
        return Done(outcome.lease, tuple(then), waiters=len(stored))

    def _remember(self, lease: Lease, fetched: Fetched) -> None:
        self._fetched[lease] = fetched
        if len(self._fetched) > _REMEMBERED:  # of a lease that was lost nothing more is heard
            del self._fetched[next(iter(self._fetched))]

    async def _publish(self, store: Store, fetched: Fetched) -> None:
        """Somebody joined while the end was on its way. If they keep coming, it would never get through: so the result
        is put where they look before they join, and serves them. The step that ends the fetch closes it again."""
        now = (await store.peek(self._demand.cache_queue, fetched.key)).at
        await store.enqueue([self._demand.cache_job(fetched, now + _OPEN_FOR)])

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            fetched = self._fetched.pop(outcome.lease, None)
            if fetched is not None and isinstance(outcome, Done):
                cost = self._demand.cost_of(fetched.key) if fetched.source == "api" else 0
                self._demand.counters.fetched(fetched.prefetch, bool(outcome.waiters), cost)


def part(fetched: Fetched, waiters: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Those whom a fetch serves, and those who asked for something fresher than it."""
    served: list[Entry] = []
    others: list[Entry] = []
    for entry in waiters:
        fits = fetched.source != "nobody" and (entry.fresh_after or 0) <= fetched.at
        (served if fits else others).append(entry)
    return served, others


def runner(demand: Demand, function: Callable[[str], Any]) -> Callable[[Any], Any]:
    """The user's function as the handler of fetch jobs."""

    def before(start: Start) -> Fetched | None:
        if start.instead is None and not start.nobody:
            demand.counters.called()
            return None
        demand.spent_nothing()
        if start.nobody:
            return Fetched(start.key, start.at, start.prefetch, "nobody")
        return Fetched(start.key, start.instead.fetched_at, start.prefetch, "cache")  # type: ignore[union-attr]

    def after(start: Start, value: object) -> Fetched:
        try:
            result = encode_result(value)
        except InvalidInput as error:
            raise BuryJob(f"result: fetch returned a {type(value).__name__}, which {error}") from error
        return Fetched(start.key, start.at, start.prefetch, "api", result)

    async def on_loop(start: Start) -> Fetched:
        return before(start) or after(start, await function(start.key))

    def in_thread(start: Start) -> Fetched:
        return before(start) or after(start, function(start.key))

    return on_loop if inspect.iscoroutinefunction(inspect.unwrap(function)) else in_thread


_fetched = msgspec.msgpack.Decoder(Fetched)
