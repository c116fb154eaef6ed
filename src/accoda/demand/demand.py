"""Many want the same thing: one fetch serves them all, the most urgent first.

deals = app.demand("deals", cost=5, budget="keepa", fresh_for=1800, keep_for=7200)

@deals.fetch
async def fetch(category: str) -> list[Deal]: ...

@deals.deliver
async def deliver(waiter: Waiter, deals: list[Deal]) -> None: ...

answer = await deals.request("Informatica", Waiter("automation-7", tier="pro", due=at, data=filters))
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

from accoda.demand import delivering, fetching
from accoda.demand.metrics import Counters, DemandView, read_counts
from accoda.demand.options import (
    Answer,
    DemandOptions,
    Host,
    Left,
    What,
    check_place,
    data_type,
    named_as,
    parameters_of,
)
from accoda.demand.ranking import Ranking
from accoda.demand.records import (
    CachedResult,
    DeliveryPayload,
    Fetched,
    FetchPayload,
    deliveries,
    read_cached,
    stored_key,
    write,
)
from accoda.demand.score import DEFAULT_WEIGHTS, PREFETCH, URGENT, crowd_of, score
from accoda.demand.waiters import (
    ASKS,
    JOINS,
    LEAVES,
    Entry,
    Waiter,
    check_id,
    entry_of,
    write_entry,
)
from accoda.demand.waiting import read_waiting
from accoda.enqueue import cost_of
from accoda.errors import InvalidInput, JobFailed, JobNotFound, ResultTimeout, StorageError
from accoda.handler_options import HandlerOptions, hints_of
from accoda.model import ById, ByKey, Enqueued, NewJob, Remove, check_queue
from accoda.payload import Codec, UnreadablePayload, encode
from accoda.storage.common.reconnecting import limited_patience
from accoda.storage.protocol import Store
from accoda.times import milliseconds, seconds

if TYPE_CHECKING:
    import typing_extensions  # for type checkers, which all know it: a default is new in Python 3.13

    from accoda.demand.sync import SyncDemand

    V = typing_extensions.TypeVar("V", default=Any)
else:
    V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

FRESH_FOR = 3600.0
"""Seconds for which a result is fresh where nothing else is said."""
KEPT_LEAST = 3600.0
"""Seconds for which a result is kept for its deliveries, even if nothing is cached."""
LAST_FLUSH = 2.0
"""Seconds for which a process that ends tries to store what it has counted."""
FIRST_LOOK, LAST_LOOK = 0.002, 0.25
"""Seconds between two looks for a result: the first pause, and the longest."""


class Demand(Generic[V]):
    """One kind of result that many may want, each by its key. `deals: Demand[list[Deal]] = app.demand("deals")` tells
    a type checker what `get` gives."""

    def __init__(self, host: Host, queue: str, options: DemandOptions) -> None:
        if unknown := options.keys() - DemandOptions.__annotations__.keys():
            names = ", ".join(DemandOptions.__annotations__)
            raise InvalidInput(min(unknown), f"there is no such option of a demand; use {names}")
        check_queue(f"{queue}.deliver")
        self.host = host
        self.queue = queue
        self.deliver_queue = f"{queue}.deliver"
        self.cache_queue = f"{queue}.cache"
        keep_for = options.get("keep_for")
        kept = None if keep_for is None else seconds("keep_for", keep_for)
        usual = FRESH_FOR if kept is None else min(FRESH_FOR, kept)
        self.fresh_for = seconds("fresh_for", options.get("fresh_for", usual))
        self.keep_for = self.fresh_for if kept is None else kept
        if self.keep_for < self.fresh_for:
            raise InvalidInput("keep_for", f"must be at least fresh_for, which is {self.fresh_for:g} s")
        self.fresh_ms = round(self.fresh_for * 1000)
        self.weights = options.get("weights", DEFAULT_WEIGHTS)
        self.prefetch = options.get("prefetch")
        self.upkeep = seconds("upkeep", options.get("upkeep", 5.0))
        self.counters = Counters(queue)
        budget = options.get("budget") or ()
        self.budgets = (budget,) if isinstance(budget, str) else tuple(budget)
        self._cost = options.get("cost", 0)
        self._rankings: WeakKeyDictionary[asyncio.AbstractEventLoop, Ranking] = WeakKeyDictionary()
        self._result: Codec[V] = Codec()
        self._data: Codec[Any] = Codec()

    # -- the user's functions

    @overload
    def fetch(self, function: F, /) -> F: ...
    @overload
    def fetch(self, /, **options: Unpack[HandlerOptions]) -> Callable[[F], F]: ...

    def fetch(self, function: Any = None, /, **options: Any) -> Any:
        """Decorates the function of a key that fetches its result, `async def` or `def`.

        It takes the options of a handler: `@deals.fetch(lease=120, max_attempts=5)`.
        """

        def add(function: F) -> F:
            parameters_of(function, "fetch", "key")
            self._result = Codec(hints_of(function).get("return", Any))
            chosen = check_place(cast(HandlerOptions, options))
            if self.budgets:
                chosen["budget"] = self.budgets
                chosen.setdefault("urgent", URGENT)
            self._add(self.queue, function, fetching.runner(self, function), chosen, fetching.FetchHooks(self))
            if self.cache_queue not in self.host.handlers:
                self.host.add_handler(self.cache_queue, _forget, HandlerOptions(batch=100))
            return function

        return add if function is None else add(function)

    @overload
    def deliver(self, function: F, /) -> F: ...
    @overload
    def deliver(self, /, **options: Unpack[HandlerOptions]) -> Callable[[F], F]: ...

    def deliver(self, function: Any = None, /, **options: Any) -> Any:
        """Decorates the function of a `Waiter` and a result that delivers the result. Takes a handler's options too."""

        def add(function: F) -> F:
            waiter, result = parameters_of(function, "deliver", "waiter", "result")
            hints = hints_of(function)
            self._data = Codec(data_type(hints.get(waiter, Any)))
            hooks = delivering.DeliveryHooks(self, self._data, hints.get(result, Any))
            chosen = check_place(cast(HandlerOptions, options))
            self._add(self.deliver_queue, function, delivering.runner(self, function), chosen, hooks)
            return function

        return add if function is None else add(function)

    def _add(
        self,
        queue: str,
        function: Callable[..., Any],
        run: Callable[[Any], Any],
        options: HandlerOptions,
        hooks: fetching.FetchHooks | delivering.DeliveryHooks,
    ) -> None:
        handler = self.host.add_handler(queue, named_as(function, run), options)
        handler.codec, handler.hooks = hooks.codec, hooks

    def check_data(self, data: object) -> None:
        """Refuse data of a waiter that `deliver`, where it is declared, could not read: for data from outside."""
        try:
            self._data.decode(encode(data))
        except UnreadablePayload as error:
            raise InvalidInput("waiter.data", f"does not fit what deliver takes: {error}") from error

    # -- requests

    async def request(
        self,
        key: str,
        waiter: Waiter[Any],
        *,
        fresh_after: datetime | int | None = None,
        lane: str | None = None,
        connection: object = None,
    ) -> Answer:
        """Let a waiter have the result of a key.

        "cached": there is a fresh one, and its delivery is enqueued; "stale": the one that is there is delivered, and a
        new one is fetched; "attached", "created": it is delivered when it is fetched. With `fresh_after`, only a result
        whose fetch began at that moment or later is used.

        `lane` is that of the fetch that the request makes, such as the host that is asked. A fetch that is there
        already keeps its own.

        With `connection`, an async connection to a database, the request is part of the transaction that is open there.
        """
        asked = await self.ask(key, waiter, fresh_after, lane)
        if connection is not None:
            return await self.answer(asked, await self.host.transactions.enqueue(connection, self.jobs_of(asked)))
        store = await self.host.connections.get()
        if asked.cached is None:
            answer = await self._join(store, key, asked.entry, asked.at)
            self.counters.answered(store, answer.what)
            return answer
        told = await store.enqueue(self.jobs_of(asked))
        if len(told) > 1:
            await self._ranking.joined(store, stored_key(key), _refreshing(asked.entry), told[1], asked.at)
        return await self.answer(asked, told)

    @cached_property
    def sync(self) -> SyncDemand[V]:
        """The same calls without `await`: `deals.sync.request(…)`."""
        from accoda.demand.sync import SyncDemand

        return SyncDemand(self)

    async def withdraw(self, key: str, waiter_id: str) -> Left:
        """Let a waiter leave. "cancelled": it was the last one, and the fetch is cancelled, whether it waits or runs.

        "absent": it does not wait for this key (any more); its delivery may be on its way.
        """
        check_id(waiter_id)
        name = stored_key(key)
        store = await self.host.connections.get()
        while True:
            log = await self._ranking.look(store, name)
            if log is None or not log.has(waiter_id):
                return "absent"
            entry = Entry(LEAVES, waiter_id, leaves=log.id)
            left = (await store.enqueue([self._fetch_job(key, entry, PREFETCH)]))[0]
            if left.id == entry.leaves:
                break
            # The job in which the waiter was has ended since the look. The entry came too late, and means nothing where
            # it is now: the waiter may be there too, and if it is found there it leaves that job.
            if left.what == "created":
                # The entry has made a job that has no waiter. If a waiter joins it before it is removed, it has more
                # entries than this one, and stays.
                await store.change([Remove(left.id, 1, self.queue)])
        # The entry is in the log of the waiter's job, before that job's end: the waiter is not served, whatever becomes
        # of the job.
        self.counters.answered(store, "left")
        log = await self._ranking.look(store, name)
        if log is not None and log.id == left.id:
            if not log.crowd.count and await store.change([Remove(log.id, log.seen, self.queue)]):
                return "cancelled"
            await self._ranking.update(store, name)
        return "left"

    async def get(
        self,
        key: str,
        *,
        timeout: float | None = None,
        tier: str | None = None,
        due: datetime | int | None = None,
        fresh_after: datetime | int | None = None,
        lane: str | None = None,
    ) -> V:
        """The result of a key: the cached one while it is fresh, or one that is fetched now, for all callers at once.

        Raises `ResultTimeout` if that takes longer than `timeout` seconds, and `JobFailed` if the fetch is given up.
        """
        tiers = self.weights.tiers
        waiter: Waiter[None] = Waiter(f"get-{secrets.token_hex(8)}", tier or min(tiers, key=lambda t: tiers[t]), due)
        moment = None if fresh_after is None else milliseconds("fresh_after", fresh_after)
        entry = entry_of(waiter, self.weights, moment, ASKS, lane)
        name = stored_key(key)
        store = await self.host.connections.get()
        look = await self._ranking.look_up_cached(store, name)
        cached = read_cached(look.job)
        if cached is not None and _is_younger(cached, self.fresh_for, look.at) and cached.fetched_at >= (moment or 0):
            self.counters.answered(store, "cached")
            return self._result.decode(cached.result)
        answer = await self._join(store, key, entry, look.at)
        self.counters.answered(store, answer.what)
        try:
            before = -1 if cached is None else cached.fetched_at
            return self._result.decode(await self._wait(store, name, answer.id, timeout, max(before + 1, moment or 0)))
        except (ResultTimeout, asyncio.CancelledError):
            await self.withdraw(key, waiter.id)
            raise

    def forget(self) -> None:
        """Another store is in place from now on, as testing mode does: what is known of the old one is wrong there."""
        self._rankings.clear()
        self.counters = Counters(self.queue)

    async def view(self) -> DemandView:
        """The demand in numbers, as it is now, whether a worker runs or not."""
        store = await self.host.connections.get()
        await self.counters.flush(store)
        waiting, counts = await asyncio.gather(read_waiting(store, self.queue), read_counts(store, self.queue))
        return DemandView(self.queue, waiting, counts)

    async def close(self) -> None:
        """Store what this process has counted: `app.close()` does, and a worker that leaves. If the store is away, that
        is given up after some seconds."""
        if self.counters.has_any:
            with suppress(StorageError), limited_patience(LAST_FLUSH):
                await self.counters.close(await self.host.connections.get())

    # -- upkeep, called by workers

    async def upkeep_once(self, store: Store) -> None:
        """What a worker does for this demand every `upkeep` seconds."""
        await self.counters.flush(store)  # first: what this process has joined is then known to the sweep
        await self._ranking.sweep(store, self.upkeep)

    async def prefetch_once(self, store: Store) -> int:
        """Fetch ahead, if there is nothing else to do and the budgets have tokens to spare."""
        return 0 if self.prefetch is None else await self.prefetch.run_once(self, store)

    # -- for fetches, deliveries and prefetches: see `DemandContext`

    def follow_ups(self, fetched: Fetched, waiters: Iterable[Entry]) -> list[NewJob]:
        """The jobs that are enqueued in the step that ends a fetch."""
        served, others = fetching.split_served(fetched, waiters)
        then = [self.cache_job(fetched)] if fetched.source == "call" else []
        wanted = [entry for entry in served if entry.kind == JOINS]
        then += [self._delivery_job(delivery) for delivery in deliveries(fetched.key, wanted, fetched.at)]
        rank = self._rank(others, fetched.at)
        return then + [self._fetch_job(fetched.key, entry, rank) for entry in others]

    def cache_job(self, fetched: Fetched, open_until: int = 0) -> NewJob:
        """The result of a fetch, for the cache and for its deliveries."""
        data = write(CachedResult(fetched.at, fetched.result, open_until, fetched.key))
        kept = max(self.keep_for, KEPT_LEAST)
        return NewJob(self.cache_queue, data, key=stored_key(fetched.key), on_duplicate="replace", delay=kept)

    def cost_of(self, key: str) -> int:
        return cost_of(self._cost, key)

    def join_again(self, delivery: DeliveryPayload) -> None:
        """The result of a delivery is gone: its waiter joins the next fetch, in the step that ends the delivery."""
        job, entry = self.host.current, delivery.to
        self.counters.mine.attached += 1
        job.batch.then(job, self._fetch_job(delivery.key, entry, self._rank([entry], delivery.fetched_at)))

    def unpack(self, bundle: DeliveryPayload) -> None:
        """Enqueue one delivery for each waiter of a bundle, in the step that ends it."""
        job = self.host.current
        for entry in (bundle.to, *bundle.more):
            job.batch.then(job, self._delivery_job(DeliveryPayload(bundle.key, entry, bundle.fetched_at)))

    def spent_nothing(self) -> None:
        """Called in a run that made no call."""
        if self.budgets:
            self.host.current.budget.spent(0)

    async def available(self) -> float | None:
        """The tokens of the scarcest of its budgets; None if it has no budget."""
        if not self.budgets:
            return None
        views = await self.host.budget_views()
        return min(views[name].available for name in self.budgets)

    # -- steps

    @property
    def _ranking(self) -> Ranking:
        """That of this event loop: loops in other threads have their own."""
        loop = asyncio.get_running_loop()
        ranking = self._rankings.get(loop)
        if ranking is None:
            ranking = self._rankings[loop] = Ranking(self.queue, self.cache_queue, self.weights)
        return ranking

    async def _join(self, store: Store, key: str, entry: Entry, at: int) -> Answer:
        name, job = stored_key(key), self._fetch_job(key, entry, self._rank([entry], at))
        enqueued = await self._ranking.enqueue(store, name, job)
        await self._ranking.joined(store, name, entry, enqueued, at)
        what: What = "created" if enqueued.what == "created" else "attached"
        return Answer(what, enqueued.id, enqueued.waiters)

    async def ask(self, key: str, waiter: Waiter[Any], fresh_after: datetime | int | None, lane: str | None) -> Request:
        """What a request is about: a step of `request`."""
        moment = None if fresh_after is None else milliseconds("fresh_after", fresh_after)
        entry = entry_of(waiter, self.weights, moment, lane=lane)
        look = await self._ranking.look_up_cached(await self.host.connections.get(), stored_key(key))
        if moment is not None and moment > look.at:
            raise InvalidInput("fresh_after", "must not be in the future; enqueue the request with a delay instead")
        cached = read_cached(look.job)
        if cached is None or not _is_younger(cached, self.keep_for, look.at) or cached.fetched_at < (moment or 0):
            cached = None
        return Request(key, entry, look.at, cached)

    def jobs_of(self, asked: Request) -> list[NewJob]:
        """The fetch that the waiter joins; or the delivery of the cached result and, if that is stale, a new fetch."""
        if asked.cached is None:
            return [self._fetch_job(asked.key, asked.entry, self._rank([asked.entry], asked.at))]
        jobs = [self._delivery_job(DeliveryPayload(asked.key, asked.entry, asked.cached.fetched_at))]
        if not _is_younger(asked.cached, self.fresh_for, asked.at):
            again = _refreshing(asked.entry)
            jobs.append(self._fetch_job(asked.key, again, self._rank([again], asked.at)))
        return jobs

    async def answer(self, asked: Request, told: Sequence[Enqueued]) -> Answer:
        """What became of the jobs of a request. In a transaction no rank is updated: the next sweep does that, for it
        sees the waiter only when that has committed."""
        first = told[0]
        if asked.cached is not None:
            what: What = "cached" if len(told) == 1 else "stale"
            answer = Answer(what, first.id, 0 if len(told) == 1 else told[1].waiters, asked.cached.fetched_at)
        else:
            what = "created" if first.what == "created" else "outbox" if first.what == "outbox" else "attached"
            answer = Answer(what, first.id, first.waiters)
        if what != "outbox":
            self.counters.answered(await self.host.connections.get(), what)
        return answer

    def _fetch_job(self, key: str, entry: Entry, rank: float) -> NewJob:
        return NewJob(
            self.queue,
            write(FetchPayload(key)),
            rank=rank,
            cost=self.cost_of(key),
            key=stored_key(key),
            on_duplicate="attach",
            waiter=write_entry(entry),
            lane=entry.lane,
        )

    def _rank(self, entries: Iterable[Entry], at: int) -> float:
        """The rank of a fetch with only these waiters."""
        return score(crowd_of((self.weights.points(entry.tier), entry.due) for entry in entries), at, self.weights)

    def _delivery_job(self, delivery: DeliveryPayload) -> NewJob:
        rank = min(self.weights.points(entry.tier) for entry in (delivery.to, *delivery.more))
        return NewJob(self.deliver_queue, write(delivery), rank=rank)

    async def _wait(self, store: Store, name: str, id: int, timeout: float | None, since: int) -> bytes:
        """Look for a result of the moment `since` or later, at growing intervals."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK
        while True:
            job = (await store.look(ById(id))).job  # before the cache: a fetch that ended has left its result there
            cached = read_cached((await store.look(ByKey(self.cache_queue, name))).job)
            if cached is not None and cached.fetched_at >= since:
                return cached.result
            if job is None:
                raise JobNotFound(id)
            if job.state == "dead":
                raise JobFailed(id, job.reason or "no reason given")
            if deadline is not None and time.monotonic() >= deadline:
                raise ResultTimeout(id, timeout or 0.0, job.state)
            await asyncio.sleep(pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(LAST_LOOK, pause * 1.5)


class Request(NamedTuple):
    """A request at the moment `at`, and the cached result that serves it; None: it has to wait for a fetch."""

    key: str
    entry: Entry
    at: int
    cached: CachedResult | None


def _refreshing(entry: Entry) -> Entry:
    """What asks for a new result on behalf of a waiter that is given a stale one."""
    return Entry(ASKS, entry.id, entry.tier, entry.due, lane=entry.lane)


def _is_younger(cached: CachedResult, seconds: float, at: int) -> bool:
    return at - cached.fetched_at < seconds * 1000 or at < cached.open_until


async def _forget() -> None:
    """A cached result is a delayed job: when its time is over it runs, and is gone."""
