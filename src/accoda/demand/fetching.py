"""The fetch of a demand: one run serves all its waiters, and its end is one atomic step.

    opening   look at the cache and the waiters: is the call still needed?
    run       the user's function
    ending    Done, with the cached result and one delivery for each waiter as follow-ups

`Done(waiters=n)` is refused if a waiter joined or left after they were read, and `ending` then reads them again. So no
waiter that was told "attached" is forgotten, and none that has left is served.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from accoda.demand.records import CachedResult, DemandContext, Fetched, FetchPayload, RunCodec, read_cached, stored_key
from accoda.demand.waiters import Entry, present, read_entries
from accoda.errors import BuryJob, InvalidInput
from accoda.model import Bury, ById, ByKey, Done, Head, Job, Lease, Outcome
from accoda.payload import UnreadablePayload, encode_result
from accoda.storage.protocol import Store

_OPEN_FOR = 5000
"""Milliseconds for which a published result serves new requests if its worker dies before the fetch has ended."""
_REMEMBERED = 1000


class FetchRun(Struct, frozen=True):
    """What a run is told: fetch `key`; or not, because `instead` is there, or because it is `unwanted`."""

    key: str
    at: int
    prefetch: bool = False
    instead: CachedResult | None = None
    unwanted: bool = False


def plan(
    payload: FetchPayload, waiters: Mapping[str, Entry], cached: CachedResult | None, at: int, fresh_for: int
) -> FetchRun:
    """Whether a call is needed. It is not if all waiters have left, nor if a fetch that ended between a request's look
    at the cache and its joining has left a result that is good enough for all waiters."""
    run = FetchRun(payload.key, at, payload.prefetch)
    if not waiters and not payload.prefetch:
        return msgspec.structs.replace(run, unwanted=True)
    if cached is None or at - cached.fetched_at >= fresh_for:
        return run
    asked = max([payload.fresh_after, *(entry.fresh_after or 0 for entry in waiters.values())])
    return run if cached.fetched_at < asked else msgspec.structs.replace(run, instead=cached)


class FetchHooks:
    """What happens around the runs of fetch jobs."""

    def __init__(self, demand: DemandContext) -> None:
        self.codec = RunCodec(FetchPayload)
        self._demand = demand
        self._fetched: dict[Lease, Fetched] = {}

    async def opening(self, store: Store, jobs: Sequence[Job]) -> None:
        await asyncio.gather(*(self._plan(store, job) for job in jobs))

    async def _plan(self, store: Store, job: Job) -> None:
        try:
            payload = self.codec.decode(job.data)
        except UnreadablePayload as error:
            return self.codec.prepare(job.lease, error)
        look, stored = await asyncio.gather(
            store.look(ByKey(self._demand.cache_queue, stored_key(payload.key))), _waiters(store, job.lease)
        )
        waiters = present(read_entries(stored), job.id)
        run = plan(payload, waiters, read_cached(look.job), look.at, self._demand.fresh_ms)
        return self.codec.prepare(job.lease, run)

    async def ending(self, store: Store, outcomes: Sequence[Outcome]) -> list[Outcome]:
        return list(await asyncio.gather(*(self._end(store, outcome) for outcome in outcomes)))

    async def _end(self, store: Store, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Done):
            return outcome
        fetched = _fetched.decode(outcome.result or b"")
        try:
            if outcome.lease in self._fetched and fetched.source == "call":
                await self._publish(store, fetched)
            self._remember(outcome.lease, fetched)
            stored = await _waiters(store, outcome.lease)
            waiters = present(read_entries(stored), outcome.lease.id).values()
            then = [*outcome.then, *self._demand.follow_ups(fetched, waiters)]
        except InvalidInput as error:  # the result is larger than a job may be: fetching it again would not help
            return Bury(outcome.lease, f"result: {error}")
        return Done(outcome.lease, tuple(then), waiters=len(stored))

    def _remember(self, lease: Lease, fetched: Fetched) -> None:
        self._fetched[lease] = fetched
        if len(self._fetched) > _REMEMBERED:  # `ended` is never called for a lost lease
            del self._fetched[next(iter(self._fetched))]

    async def _publish(self, store: Store, fetched: Fetched) -> None:
        """A waiter joined while the end was on its way. If waiters keep joining, it would never be accepted: so the
        result is put into the cache, where requests look before they join. The step that ends the fetch replaces it."""
        now = (await store.look(Head(self._demand.cache_queue))).at
        await store.enqueue([self._demand.cache_job(fetched, now + _OPEN_FOR)])

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            fetched = self._fetched.pop(outcome.lease, None)
            if fetched is not None and isinstance(outcome, Done):
                cost = self._demand.cost_of(fetched.key) if fetched.source == "call" else 0
                self._demand.counters.fetched(fetched.prefetch, bool(outcome.waiters), cost)


async def _waiters(store: Store, lease: Lease) -> tuple[bytes, ...]:
    """The log of a running job; empty if the lease is lost, and then its outcome will be refused anyway."""
    look = await store.look(ById(lease.id), waiters_after=0)
    return look.waiters if look.job is not None and look.job.attempts == lease.attempts else ()


def split_served(fetched: Fetched, waiters: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The waiters that a fetch serves, and those that asked for something fresher."""
    served: list[Entry] = []
    others: list[Entry] = []
    for entry in waiters:
        fits = fetched.source != "unwanted" and (entry.fresh_after or 0) <= fetched.at
        (served if fits else others).append(entry)
    return served, others


def runner(demand: DemandContext, function: Callable[[str], Any]) -> Callable[[Any], Any]:
    """The user's function as the handler of fetch jobs."""

    def before(run: FetchRun) -> Fetched | None:
        if run.instead is None and not run.unwanted:
            demand.counters.mine.calls += 1
            return None
        demand.spent_nothing()
        if run.instead is None:
            return Fetched(run.key, run.at, run.prefetch, "unwanted")
        return Fetched(run.key, run.instead.fetched_at, run.prefetch, "cache")

    def after(run: FetchRun, value: object) -> Fetched:
        try:
            result = encode_result(value)
        except InvalidInput as error:
            raise BuryJob(f"result: fetch returned a {type(value).__name__}, which {error}") from error
        return Fetched(run.key, run.at, run.prefetch, "call", result)

    async def on_loop(run: FetchRun) -> Fetched:
        return before(run) or after(run, await function(run.key))

    def in_thread(run: FetchRun) -> Fetched:
        return before(run) or after(run, function(run.key))

    return on_loop if inspect.iscoroutinefunction(inspect.unwrap(function)) else in_thread


_fetched = msgspec.msgpack.Decoder(Fetched)
