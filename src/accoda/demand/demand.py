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
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

from accoda.demand import delivering, fetching
from accoda.demand.counters import Counters, read_counts
from accoda.demand.functions import Anything, checked, data_type, named, parameters_of
from accoda.demand.options import Answer, DemandOptions, DemandView, Left, What
from accoda.demand.records import Cached, Delivery, Errand, deliveries, read_cached, write
from accoda.demand.score import SEED, URGENT, crowd_of, score
from accoda.demand.standing import Standing, read_metrics
from accoda.demand.waiters import (
    ASKS,
    JOINS,
    LEAVES,
    Entry,
    Waiter,
    check_id,
    entry_of,
    present,
    read_entries,
    write_entry,
)
from accoda.enqueue import cost_of
from accoda.errors import InvalidInput, JobFailed, JobNotFound, ResultTimeout
from accoda.model import Enqueued, NewJob, check_queue
from accoda.payload import Codec
from accoda.runtime.handler import HandlerOptions, hints_of
from accoda.runtime.results import FIRST_LOOK, LAST_LOOK
from accoda.storage.protocol import Store
from accoda.times import milliseconds, seconds

if TYPE_CHECKING:
    from accoda.app import App

F = TypeVar("F", bound=Callable[..., Any])

KEPT_LEAST = 3600.0
"""Seconds for which a result is kept for its deliveries, also where nothing is cached."""


class Demand:
    """One kind of thing that many may want, each by its key."""

    def __init__(self, app: App, queue: str, options: DemandOptions) -> None:
        unknown = options.keys() - DemandOptions.__annotations__.keys()
        if unknown:
            names = ", ".join(DemandOptions.__annotations__)
            raise InvalidInput(min(unknown), f"there is no such option of a demand; use {names}")
        check_queue(f"{queue}.deliver")
        self.app = app
        self.queue = queue
        self.deliver_queue = f"{queue}.deliver"
        self.cache_queue = f"{queue}.cache"
        self.fresh_for = seconds("fresh_for", options.get("fresh_for", 0.0))
        keep_for = options.get("keep_for")
        self.keep_for = self.fresh_for if keep_for is None else seconds("keep_for", keep_for)
        if self.keep_for < self.fresh_for:
            raise InvalidInput("keep_for", f"must be at least fresh_for, which is {self.fresh_for:g} s")
        self.fresh_ms = round(self.fresh_for * 1000)
        self.weights = options.get("weights", SEED)
        self.prefetch = options.get("prefetch")
        self.upkeep = seconds("upkeep", options.get("upkeep", 5.0))
        self.counters = Counters(queue)
        budget = options.get("budget") or ()
        self.budgets = (budget,) if isinstance(budget, str) else tuple(budget)
        self._cost = options.get("cost", 0)
        self._standings: WeakKeyDictionary[asyncio.AbstractEventLoop, Standing] = WeakKeyDictionary()
        self._result = Codec[Any]()

    # -- what the user writes

    @overload
    def fetch(self, function: F, /) -> F: ...
    @overload
    def fetch(self, /, **options: Unpack[HandlerOptions]) -> Callable[[F], F]: ...

    def fetch(self, function: Any = None, /, **options: Any) -> Any:
        """Say how a key's result is fetched: a function of the key, `async def` or `def`.

        With options of a handler where they are needed: `@deals.fetch(lease=120, max_attempts=5)`.
        """
        if function is None:
            return lambda function: self._fetch(function, cast(HandlerOptions, options))
        return self._fetch(function, cast(HandlerOptions, options))

    def _fetch(self, function: F, options: HandlerOptions) -> F:
        parameters_of(function, "fetch", "key")
        self._result = Codec(hints_of(function).get("return", Any))
        codec = fetching.FetchCodec()
        merged = checked(options)
        if self.budgets:
            merged["budget"] = self.budgets
            merged.setdefault("urgent", URGENT)
        handler = self.app._add(self.queue, named(fetching.runner(self, function), function), merged)
        handler.codec, handler.rites = codec, fetching.Fetching(self, codec)
        self._serve_cache()
        return function

    @overload
    def deliver(self, function: F, /) -> F: ...
    @overload
    def deliver(self, /, **options: Unpack[HandlerOptions]) -> Callable[[F], F]: ...

    def deliver(self, function: Any = None, /, **options: Any) -> Any:
        """Say how a result gets to a waiter: a function of the `Waiter` and the result."""
        if function is None:
            return lambda function: self._deliver(function, cast(HandlerOptions, options))
        return self._deliver(function, cast(HandlerOptions, options))

    def _deliver(self, function: F, options: HandlerOptions) -> F:
        waiter, result = parameters_of(function, "deliver", "waiter", "result")
        hints = hints_of(function)
        codec = delivering.DeliveryCodec(data_type(hints.get(waiter, Any)), hints.get(result, Any))
        run = named(delivering.runner(self, function), function)
        handler = self.app._add(self.deliver_queue, run, checked(options))
        handler.codec, handler.rites = codec, delivering.Delivering(self, codec)
        return function

    # -- those who want something

    async def request(self, key: str, waiter: Waiter[Any], *, fresh_after: datetime | int | None = None) -> Answer:
        """Let a waiter have the result of a key.

        "cached": there is a fresh one, and its delivery is enqueued; "stale": the one that is there is delivered, and a
        new one is fetched; "attached", "created": it is delivered when it is fetched. With `fresh_after`, only what was
        fetched from that moment on will do.
        """
        moment = None if fresh_after is None else milliseconds("fresh_after", fresh_after)
        entry = entry_of(waiter, self.weights, moment)
        store = await self.app.connections.get()
        look = await self._standing.look_into_cache(store, key)
        if moment is not None and moment > look.at:
            raise InvalidInput("fresh_after", "must not be in the future; enqueue the request with a delay instead")
        cached = read_cached(look.job)
        if cached is None or not self._is_kept(cached, look.at) or cached.fetched_at < (moment or 0):
            answer = await self._join(store, key, entry, look.at)
        else:
            answer = await self._serve(store, key, entry, cached, look.at)
        await self.counters.answered(store, answer.what)
        return answer

    async def withdraw(self, key: str, waiter_id: str) -> Left:
        """Let a waiter leave. "cancelled": it was the last one, and the fetch is cancelled, whether it waits or runs.

        "absent": it does not wait for this key (any more): its delivery may be on its way.
        """
        check_id(waiter_id)
        store = await self.app.connections.get()
        log = await self._standing.look(store, key)
        if log is None or not log.has(waiter_id):
            return "absent"
        id = log.id
        mark = self._errand(key, Entry(LEAVES, waiter_id), score(crowd_of(()), 0))
        answer = (await store.enqueue([mark]))[0]
        if answer.what == "created":
            # The fetch has ended since the look. What the mark has made is no job that anybody wants; if somebody joins
            # it before it is dropped, it has more waiters, and stays.
            await store.drop(self.queue, answer.id, 1)
            return "absent"
        # A mark in the log of the job in which it waited is there before that job's end: it is not served, whatever
        # becomes of the job now. If the mark is with a later job, it came too late, unless it waits for that one, too.
        left = answer.id == id or await self._was_in(store, key, waiter_id, answer)
        log = await self._standing.look(store, key)
        if log is not None and log.id == answer.id:
            if not log.crowd.count and await store.drop(self.queue, log.id, log.seen):
                return "cancelled" if left else "absent"
            await self._standing.put_right(store, key)
        return "left" if left else "absent"

    async def get(
        self,
        key: str,
        *,
        timeout: float | None = None,
        tier: str | None = None,
        due: datetime | int | None = None,
        fresh_after: datetime | int | None = None,
    ) -> Any:
        """The result of a key: the cached one while it is fresh, else one that is fetched now, for all who ask.

        Raises `ResultTimeout` if that takes longer than `timeout` seconds, and `JobFailed` if the fetch is given up.
        """
        tiers = self.weights.tiers
        waiter: Waiter[None] = Waiter(f"get-{secrets.token_hex(8)}", tier or min(tiers, key=lambda t: tiers[t]), due)
        moment = None if fresh_after is None else milliseconds("fresh_after", fresh_after)
        entry = entry_of(waiter, self.weights, moment, ASKS)
        store = await self.app.connections.get()
        look = await self._standing.look_into_cache(store, key)
        cached = read_cached(look.job)
        if cached is not None and self._is_fresh(cached, look.at) and cached.fetched_at >= (moment or 0):
            await self.counters.answered(store, "cached")
            return self._result.decode(cached.result)
        answer = await self._join(store, key, entry, look.at)
        await self.counters.answered(store, answer.what)
        try:
            before = -1 if cached is None else cached.fetched_at
            return self._result.decode(await self._await(store, key, answer.id, timeout, max(before + 1, moment or 0)))
        except (ResultTimeout, asyncio.CancelledError):
            await self.withdraw(key, waiter.id)
            raise

    async def view(self) -> DemandView:
        """The demand in numbers, without looking at a single job."""
        store = await self.app.connections.get()
        metrics, counts = await asyncio.gather(read_metrics(store, self.queue), read_counts(store, self.queue))
        return DemandView(self.queue, metrics, counts)

    # -- for its own parts

    def follow_ups(self, fetched: fetching.Fetched, waiters: Iterable[Entry]) -> list[NewJob]:
        """What is enqueued in the step that ends a fetch."""
        served, others = fetching.part(fetched, waiters)
        then: list[NewJob] = []
        if fetched.source == "api":
            then.append(self.cache_job(fetched))
        wanted = [entry for entry in served if entry.kind == JOINS]
        then += [self._delivery(delivery) for delivery in deliveries(fetched.key, wanted, fetched.at)]
        rank = score(crowd_of(self.weights.wish(entry.tier, entry.due) for entry in others), fetched.at, self.weights)
        return then + [self._errand(fetched.key, entry, rank) for entry in others]

    def cache_job(self, fetched: fetching.Fetched, open_until: int = 0) -> NewJob:
        """The result of a fetch, for the cache and for its deliveries."""
        data = write(Cached(fetched.at, fetched.result, open_until))
        kept = max(self.keep_for, KEPT_LEAST)
        return NewJob(self.cache_queue, data, key=fetched.key, on_duplicate="replace", delay=kept)

    def cost_of(self, key: str) -> int:
        return cost_of(self._cost, key)

    def join_again(self, delivery: Delivery) -> None:
        """The result of a delivery has gone: its waiter waits for the next, in the step that ends the delivery."""
        job = self.app.current
        job.batch.then(job, self._errand(delivery.key, delivery.to, self._alone(delivery.to, delivery.fetched_at)))

    def unpack(self, bundle: Delivery) -> None:
        """Let a delivery for each follow a bundle, in the step that ends it."""
        job = self.app.current
        for entry in (bundle.to, *bundle.more):
            job.batch.then(job, self._delivery(Delivery(bundle.key, entry, bundle.fetched_at)))

    def spent_nothing(self) -> None:
        """Called in a run that made no call."""
        if self.budgets:
            self.app.current.budget.spent(0)

    async def upkeep_once(self, store: Store, worker: str) -> None:
        """What a worker does for this demand every `upkeep` seconds."""
        await self._standing.sweep(store, worker, self.upkeep)
        await self.counters.flush(store)

    async def prefetch_once(self, store: Store) -> int:
        """Fetch ahead, if there is nothing else to do and the budgets have tokens to spare."""
        return 0 if self.prefetch is None else await self.prefetch.run_once(self, store)

    async def spare(self) -> float | None:
        """What the scarcest of its budgets has available; None: it has no budget."""
        if not self.budgets:
            return None
        views = await self.app.budget_views()
        return min(views[name].available for name in self.budgets)

    # -- steps

    @property
    def _standing(self) -> Standing:
        """What is known on this event loop. Others, in other threads, have their own."""
        loop = asyncio.get_running_loop()
        standing = self._standings.get(loop)
        if standing is None:
            standing = self._standings[loop] = Standing(self.queue, self.cache_queue, self.weights)
        return standing

    async def _serve(self, store: Store, key: str, entry: Entry, cached: Cached, at: int) -> Answer:
        """A result is there: enqueue its delivery, and with it, in the same step, a new fetch if it is stale."""
        jobs = [self._delivery(Delivery(key, entry, cached.fetched_at))]
        if self._is_fresh(cached, at):
            delivery = (await store.enqueue(jobs))[0]
            return Answer("cached", delivery.id, fetched_at=cached.fetched_at)
        ask = Entry(ASKS, entry.id, entry.tier, entry.due)
        jobs.append(self._errand(key, ask, self._alone(ask, at)))
        delivery, refresh = await store.enqueue(jobs)
        await self._standing.joined(store, key, ask, refresh, at)
        return Answer("stale", delivery.id, refresh.waiters, cached.fetched_at)

    async def _was_in(self, store: Store, key: str, waiter_id: str, mark: Enqueued) -> bool:
        """Whether a waiter was among those of a job before a mark was added to them."""
        look = await store.peek(self.queue, key, after=0)
        if look.job is None or look.job.id != mark.id:
            return False
        return waiter_id in present(read_entries(look.waiters[: mark.waiters - 1]))

    async def _join(self, store: Store, key: str, entry: Entry, at: int) -> Answer:
        job = self._errand(key, entry, self._alone(entry, at))
        enqueued = await self._standing.enqueue(store, key, job)
        await self._standing.joined(store, key, entry, enqueued, at)
        what: What = "created" if enqueued.what == "created" else "attached"
        return Answer(what, enqueued.id, enqueued.waiters)

    def _errand(self, key: str, entry: Entry, rank: float) -> NewJob:
        data = write(Errand(key))
        return NewJob(
            self.queue,
            data,
            rank=rank,
            cost=self.cost_of(key),
            key=key,
            on_duplicate="attach",
            waiter=write_entry(entry),
        )

    def _alone(self, entry: Entry, at: int) -> float:
        return score(crowd_of([self.weights.wish(entry.tier, entry.due)]), at, self.weights)

    def _delivery(self, delivery: Delivery) -> NewJob:
        rank = min(self.weights.points(entry.tier) for entry in (delivery.to, *delivery.more))
        return NewJob(self.deliver_queue, write(delivery), rank=rank)

    def _is_fresh(self, cached: Cached, at: int) -> bool:
        return at - cached.fetched_at < self.fresh_ms or at < cached.open_until

    def _is_kept(self, cached: Cached, at: int) -> bool:
        return at - cached.fetched_at < self.keep_for * 1000 or at < cached.open_until

    async def _await(self, store: Store, key: str, id: int, timeout: float | None, since: int) -> bytes:
        """Look, ever less often, until a result of the moment `since` or later is there."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK
        while True:
            job = await store.find(id)  # before the cache: a fetch that has ended since has left its result there
            cached = read_cached((await store.peek(self.cache_queue, key)).job)
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

    def _serve_cache(self) -> None:
        """A cached result is a delayed job, whose run is its end."""
        if self.cache_queue not in self.app.handlers:

            async def forget(cached: bytes) -> None: ...

            handler = self.app._add(self.cache_queue, forget, HandlerOptions(batch=100))
            handler.codec = Anything()
