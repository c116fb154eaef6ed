"""What a user imports: `App`, its handlers, and the calls that enqueue to them.

app = App()

@app.handler("emails", batch=50, max_attempts=10)
async def send(email: Email) -> None: ...

await send.enqueue(Email("anna@example.com"), priority=Priority.HIGH, delay=30)
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from accoda.budget import Books, Budget, BudgetView, outside
from accoda.budget.registry import BudgetRegistry
from accoda.budget.usage import Usage, read_usage
from accoda.clock import Clock, SystemClock
from accoda.connections import Connections, lazy_store
from accoda.demand.demand import Demand
from accoda.demand.options import DemandOptions
from accoda.enqueue import EnqueueMiddleware, EnqueueOptions, QueueSpec, new_job, new_jobs
from accoda.errors import InvalidInput, MissingDriver, NotFound, StorageError
from accoda.flows.batch import FlowBatch, OnEnd
from accoda.flows.builder import Flow
from accoda.flows.chains import Chain, Group
from accoda.flows.flows import Flows, to_be_started
from accoda.flows.model import KEEP_FOR, FlowInfo
from accoda.flows.sync import SyncBatch, SyncFlows
from accoda.handler_options import HandlerOptions
from accoda.lanes.app_lanes import AppLanes, SyncLanes
from accoda.model import ById, Cancel, Enqueued, JobInfo, NewJob, SyncEnqueued, check_count, check_queue
from accoda.runtime.batch import Batch, Running, current
from accoda.runtime.handler import Handler, QueueHandlers
from accoda.runtime.middleware import Around, Middleware, check_around, check_enqueue_middleware
from accoda.runtime.results import Progress, read_progress, wait_for_result, write_progress
from accoda.runtime.system_jobs import SystemJob
from accoda.storage.common.reconnecting import Backoff, patience_limit
from accoda.storage.protocol import Store
from accoda.sync import Forward, LoopThread
from accoda.times import milliseconds, seconds
from accoda.transactions import Transactions

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from accoda.app_testing import Trial
    from accoda.flows.coordinator import OnEnd as OnFlowEnd
    from accoda.operations.why import Explanation
    from accoda.schedules import Schedule, ScheduledOptions
    from accoda.schedules.words import Length

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
Awaits = Coroutine[Any, Any, V]
"""What a call of an `async def` function gives."""

DEFAULT_URL = "sqlite:///accoda.db"

log = logging.getLogger("accoda.app")


class Decorator(Protocol):
    """What `app.handler(…)` gives: it turns a function into a `Handler` and keeps its types."""

    # A coroutine function also fits the form of a plain one, so its form comes first.
    @overload
    def __call__(self, function: Callable[[Batch[T]], R], /) -> Handler[T, R, Any]: ...
    @overload
    def __call__(self, function: Callable[[T], Awaits[V]], /) -> Handler[T, Awaits[V], V]: ...
    @overload
    def __call__(self, function: Callable[[T], V], /) -> Handler[T, V, V]: ...
    @overload
    def __call__(self, function: Callable[[], Awaits[V]], /) -> Handler[None, Awaits[V], V]: ...
    @overload
    def __call__(self, function: Callable[[], V], /) -> Handler[None, V, V]: ...


class ScheduledDecorator(Protocol):
    """What `app.every(…)` and `app.cron(…)` give: like `Decorator`, and it takes what is a handler already, too."""

    @overload  # a handler is a function too: this form comes first
    def __call__(self, function: Handler[T, R, V], /) -> Handler[T, R, V]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[[Batch[T]], R], /) -> Handler[T, R, Any]: ...
    @overload
    def __call__(self, function: Callable[[T], Awaits[V]], /) -> Handler[T, Awaits[V], V]: ...
    @overload
    def __call__(self, function: Callable[[T], V], /) -> Handler[T, V, V]: ...
    @overload
    def __call__(self, function: Callable[[], Awaits[V]], /) -> Handler[None, Awaits[V], V]: ...
    @overload
    def __call__(self, function: Callable[[], V], /) -> Handler[None, V, V]: ...


class App:
    """Handlers and the store that their jobs are in.

    `url` says where the jobs are; without it `ACCODA_URL` does, and without that they are in `accoda.db` beside you.
    Nothing is connected before the first call that needs it.

    `outbox` is a database of your own, `postgresql://…` or `sqlite:///…`: jobs that are enqueued with a `connection` to
    it are written to a table there, in your transaction, and workers move them on to the store. See
    docs/transactions.md.

    `middleware` runs around every batch, on the worker's loop; `around` around every call of a handler, in its own
    thread, task or process; `enqueue_middleware` before every job that the app makes is stored.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        outbox: str | None = None,
        clock: Clock | None = None,
        middleware: Sequence[Middleware] = (),
        around: Sequence[Around] = (),
        enqueue_middleware: Sequence[EnqueueMiddleware] = (),
    ) -> None:
        check_around(around)
        check_enqueue_middleware(enqueue_middleware)
        self.url = url or os.environ.get("ACCODA_URL") or DEFAULT_URL
        self.handlers: dict[str, QueueHandlers] = {}
        self.demands: dict[str, Demand] = {}
        self.schedules: dict[str, Schedule] = {}
        self.middleware = tuple(middleware)
        self.around = tuple(around)
        self.enqueue_middleware = tuple(enqueue_middleware)
        self.connections = Connections(self.url, clock)
        self.transactions = Transactions(lambda: self.connections, outbox)
        self.specs: dict[tuple[str, str | None], QueueSpec] = {}
        self.storage: Store = lazy_store(lambda: self.connections)
        self.budget_registry = BudgetRegistry(lambda: self.connections)

    @overload
    def handler(self, function: Callable[[Batch[T]], R], /) -> Handler[T, R, Any]: ...
    @overload
    def handler(self, queue: str | None = None, /, **options: Unpack[HandlerOptions]) -> Decorator: ...
    @overload
    def handler(self, function: Callable[[T], Awaits[V]], /) -> Handler[T, Awaits[V], V]: ...
    @overload
    def handler(self, function: Callable[[T], V], /) -> Handler[T, V, V]: ...
    @overload
    def handler(self, function: Callable[[], Awaits[V]], /) -> Handler[None, Awaits[V], V]: ...
    @overload
    def handler(self, function: Callable[[], V], /) -> Handler[None, V, V]: ...

    def handler(self, what: Any = None, /, **options: Any) -> Any:
        """Make a function the handler of a queue: `@app.handler("emails", …)`, or bare, for a queue of its name.

        See `HandlerOptions` for what may be said.
        """
        if callable(what):
            return self.add_handler(None, what, {})
        if what is not None:
            check_queue(what)
        return lambda function: self.add_handler(what, function, cast(HandlerOptions, options))

    def demand(self, queue: str, /, **options: Unpack[DemandOptions]) -> Demand:
        """Declare a demand: many want the results of this queue, and one fetch serves all waiters of a key.

        See `DemandOptions` for what may be said, and `Demand` for `fetch`, `deliver` and `request`.
        """
        check_queue(queue)
        if queue in self.demands:
            raise InvalidInput("queue", f"{queue!r} is a demand already")
        demand = self.demands[queue] = Demand(self, queue, options)
        return demand

    def every(self, every: Length, /, **options: Unpack[ScheduledOptions]) -> ScheduledDecorator:
        """Run a function at intervals: `@app.every("5m")`, or seconds, or a timedelta.

        See `ScheduledOptions` for what may be said; workers store the schedule when they start.
        """
        from accoda.schedules import declare

        return declare(self, {"every": every}, options)

    def cron(self, expression: str, /, *, tz: str = "UTC", **options: Unpack[ScheduledOptions]) -> ScheduledDecorator:
        """Run a function by a cron expression in a time zone: `@app.cron("0 7 * * MON-FRI", tz="Europe/Rome")`.

        Five fields, or six with seconds first.
        """
        from accoda.schedules import declare

        return declare(self, {"cron": expression, "tz": tz}, options)

    def budget(
        self,
        name: str,
        /,
        capacity: float = 20.0,
        refill: float = 20.0,
        per: float | timedelta = 60.0,
        *,
        counts: Literal["cost", "jobs"] = "cost",
        headroom: float = 0.0,
    ) -> Budget:
        """Declare tokens that jobs share: at most `capacity`, and `refill` more every `per` seconds.

        `app.budget("keepa")` alone is 20 tokens, and 20 more a minute.

        A handler names what pays for its jobs: `@app.handler("deals", budget="keepa", cost=5)`. `counts` says what is
        paid for, the jobs' cost or their number; `headroom` is the share of the capacity that is kept for urgent work.
        """
        return self.budget_registry.add(Budget(name, capacity, refill, seconds("per", per), counts, headroom))

    @property
    def budgets(self) -> dict[str, Budget]:
        """The declared budgets, by name."""
        return self.budget_registry.budgets

    @property
    def books(self) -> Books:
        """The accounts of the budgets, for this event loop: `await app.books.close(["keepa"], until=…)`."""
        return self.budget_registry.books

    async def budget_views(self) -> dict[str, BudgetView]:
        """What every budget has left, has reserved and has used today, by name."""
        with self._patience():
            return await self.books.views()

    async def can_afford(self, name: str, cost: int = 1) -> bool:
        """Whether a budget could pay this cost now, after what others have reserved and wait for. Reserves nothing."""
        with self._patience():
            return await outside.can_afford(self.books, name, cost)

    async def wait_for_tokens(self, name: str, cost: int = 1, *, timeout: float | None = None) -> None:
        """Wait until a budget can pay this cost, and spend it: for code that calls the API outside of any job.

        Callers and queues are served in the order in which they began to wait. Raises `TokensTimeout` if that takes
        longer than `timeout` seconds, and then nothing is spent.
        """
        with self._patience():
            await outside.wait_for_tokens(self.books, name, cost, timeout)

    async def spending(
        self, queue: str, *, since: datetime | int | None = None, after: int | None = None, limit: int = 100
    ) -> list[Usage]:
        """The log of what a queue's jobs took of its budgets, oldest first, from the moment `since` on.

        To read on, give the `id` of the last line as `after`. It is kept for as long as the handler's `log_for` says.
        """
        check_queue(queue)
        check_count("limit", limit)
        moment = None if since is None else milliseconds("since", since)
        with self._patience():
            return await read_usage(await self.connections.get(), queue, moment, after, limit)

    def declare(self, spec: QueueSpec) -> None:
        """Say how jobs of a queue, or of one type in it, are made, for a process that has no handler of it."""
        self.specs[spec.queue, spec.type] = spec

    async def enqueue(
        self, queue: str, payload: object = None, *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> Enqueued[Any]:
        """Enqueue one job; see `EnqueueOptions` for what may be said of it.

        With `connection`, an async connection to a database, the job is part of the transaction that is open there.
        """
        spec = self.queue_spec(queue, options.get("type"))
        jobs = [new_job(spec, payload, self.now, options)]
        with self._patience():
            if connection is not None:
                (told,) = await self.transactions.enqueue(connection, jobs)
                return told.come_from(self, spec.result)
            store = self.connections.stores.get(asyncio.get_running_loop()) or await self.connections.get()
            told = (await store.enqueue(jobs))[0]
        return told.come_from(self, spec.result)

    async def enqueue_many(
        self, queue: str, payloads: Iterable[object], *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[Enqueued[Any]]:
        """Enqueue a job for each payload, with the same options: all of them or none, in one round trip."""
        spec, jobs = self.new_jobs(queue, payloads, options)
        with self._patience():
            if connection is not None:
                told = await self.transactions.enqueue(connection, jobs)
            else:
                told = await (await self.connections.get()).enqueue(jobs) if jobs else []
        return [each.come_from(self, spec.result) for each in told]

    def new_jobs(
        self, queue: str, payloads: Iterable[object], options: EnqueueOptions
    ) -> tuple[QueueSpec, list[NewJob]]:
        """What `enqueue_many` stores, and how its queue's jobs are made."""
        if options.get("key") is not None:
            raise InvalidInput("key", "would make all these jobs one; enqueue them one by one, each with its own key")
        spec = self.queue_spec(queue, options.get("type"))
        return spec, new_jobs(spec, payloads, self.now, options)

    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob:
        """The `NewJob` that `enqueue` stores: for `Done(then=[…])`, or to enqueue in a transaction of your own."""
        return new_job(self.queue_spec(queue, options.get("type")), payload, self.now, options)

    @overload
    async def result(self, job: Enqueued[V], /, *, timeout: float | None = None) -> V: ...
    @overload
    async def result(self, job: int, /, *, timeout: float | None = None, type: type[V]) -> V: ...
    @overload
    async def result(self, job: int, /, *, timeout: float | None = None, type: Any = Any) -> Any: ...

    async def result(self, job: Any, /, *, timeout: float | None = None, type: Any = Any) -> Any:
        """Wait until a job is done, and give back what its handler returned.

        `job` is what `enqueue` gave, whose result is as the handler's return annotation says, or an id, whose result is
        plain values, or a `type` that is asked for. The queue must keep results (`keep_for`). Raises `JobFailed` if the
        job is dead, `ResultTimeout` if it takes longer.
        """
        if isinstance(job, Enqueued) and job.what == "outbox":
            raise InvalidInput(
                "result", "the job is in the outbox, and has no id before a worker has moved it on; see transactions.md"
            )
        id = job.id if isinstance(job, Enqueued) else job
        if isinstance(job, Enqueued) and type is Any:
            type = job.result_type
        if timeout is None:
            timeout = self.connections.result_timeout
        with self._patience():
            return await wait_for_result(await self.connections.get(), id, timeout, type)

    def progress(self, fraction: float | None = None, message: str = "") -> Coroutine[Any, Any, None]:
        """Say from inside a handler how far its job is: `await app.progress(0.4, "12 of 30 pages")`.

        At most ten a second are stored for each job. In a `def` handler: `app.sync.progress(…)`.
        """
        return write_progress(self.connections, self.current, fraction, message)

    async def progress_of(self, id: int) -> Progress | None:
        """What a job's handler last said of its progress."""
        with self._patience():
            return await read_progress(await self.connections.get(), id)

    async def find(self, id: int) -> JobInfo | None:
        """Everything that is stored about a job."""
        with self._patience():
            return (await (await self.connections.get()).look(ById(id))).job

    async def why(self, id: int) -> Explanation:
        """Why a job is not running, when it is likely to start, and what would make it start sooner.

        Raises `JobNotFound`. A handful of looks, whatever the number of jobs.
        """
        from accoda.operations.why import why

        with self._patience():
            return await why(self, id)

    async def cancel(self, id: int) -> bool:
        """Take a job back that waits or runs. One that runs is told within about a second, and its outcome is refused.

        It stays visible as cancelled for its `keep_for`. False: there is no such job, or it has ended already.
        """
        with self._patience():
            return await (await self.connections.get()).change([Cancel(id)]) == 1

    @property
    def current(self) -> Running[Any]:
        """The job that the single handler around this call runs: its id, its attempts, and `enqueue` for follow-ups."""
        job = current.get()
        if job is None:
            raise InvalidInput("current", "there is no job here: only a single handler has one (a batch has several)")
        return job

    def flow(
        self,
        name: str,
        /,
        *,
        deadline: datetime | timedelta | float | None = None,
        key: str | None = None,
        keep_for: float | timedelta = KEEP_FOR,
    ) -> Flow:
        """Jobs that depend on each other: `flow.add(…)` adds them, and `await flow.start()` stores all of them.

        `deadline` is a moment, or a length of time from the start: what has not ended then is taken back. `key` is the
        flow's id, and starts it only once. It is kept for `keep_for` seconds after its end.
        """
        return Flow(self, name, deadline=deadline, key=key, keep_for=keep_for)

    def batch(
        self,
        name: str,
        /,
        *,
        on_done: OnEnd = None,
        on_ended: OnEnd = None,
        on_any_dead: OnEnd = None,
        deadline: datetime | timedelta | float | None = None,
        key: str | None = None,
        keep_for: float | timedelta = KEEP_FOR,
    ) -> FlowBatch:
        """Jobs that are counted together, and what runs at their end: `async with app.batch("import-7", on_done=…)`.

        `on_done` runs when all members are done, `on_ended` when all have ended, `on_any_dead` as soon as one is dead.
        Each is a handler, which gets the batch's name if it takes a payload, or `handler.job(payload)`.
        """
        ends = {"on_done": on_done, "on_ended": on_ended, "on_any_dead": on_any_dead}
        return FlowBatch(self, Flow(self, name, deadline=deadline, key=key, keep_for=keep_for), ends)

    @cached_property
    def flows(self) -> Flows:
        """The flows in the store: `await app.flows.get(id)`, `.list(state="failed")`, `.cancel(id)`, `.retry(id)`."""
        return Flows(lambda: self.storage)

    @cached_property
    def lanes(self) -> AppLanes:
        """The lanes of a queue: `await app.lanes.get("reports")`, `.change("reports", limit=3)`, `.reset(…)`."""
        return AppLanes(lambda: self.storage)

    async def start_flow(self, id: str, jobs: Sequence[NewJob], connection: object = None) -> FlowInfo:
        """What `Flow.start` does."""
        with self._patience():
            if connection is not None:
                return await self.flow_of(id, jobs, await self.transactions.enqueue(connection, jobs))
            await (await self.connections.get()).enqueue(jobs)
            return await self.flows.get(id)

    async def flow_of(self, id: str, jobs: Sequence[NewJob], told: Sequence[Enqueued]) -> FlowInfo:
        """A flow that was stored in a transaction, as it will be; one whose key was known already, as it is."""
        if told[0].what == "kept":
            with suppress(NotFound):  # this very transaction has started it
                return await self.flows.get(id)
        return to_be_started(id, jobs)

    async def run_until_idle(self, queues: Iterable[str] | None = None) -> int:
        """Run what is ready, and what that enqueues, until nothing is left to start; give the number of jobs run.

        For tests and scripts. Delayed jobs stay where they are, and so do those that no budget can pay before a moment
        in the future.
        """
        from accoda.runtime.worker import Worker, WorkerOptions

        jobs_run = 0
        while True:
            relayed = await self._relay_rows()
            if not self.handlers:
                break
            ticks = await self._run_ticks() if self.schedules else 0
            worker = Worker(
                self, WorkerOptions(queues=tuple(queues or ()), burst=True, managed=False, system_jobs=False)
            )
            await worker.run()
            jobs_run += worker.jobs_run
            if not ticks and not relayed and not await self._move_flows():
                break
        return jobs_run

    async def _relay_rows(self) -> int:
        """Move what is in the outbox to the store; how many rows."""
        if self.transactions.outbox is None or self.connections.in_trial:
            return 0
        from accoda.transactions.relay import Relay

        return await Relay(self.transactions.outbox).run_once(await self.connections.get())

    async def _move_flows(self) -> int:
        """Start what may start in the flows to which something happened; their number."""
        store, moved = await self.connections.get(), 0
        for job in self._flow_jobs():
            while moves := await job.run_once(store):
                moved += moves
        return moved

    def _flow_jobs(self, on_end: OnFlowEnd | None = None) -> list[SystemJob]:
        from accoda.flows.coordinator import Coordinator, FlowTimers

        return [FlowTimers(), Coordinator(on_end)]

    async def _run_ticks(self) -> int:
        """Do the ticks of the schedules that are due; their number."""
        from accoda.schedules import Scheduler, maker_of, store_declared

        store = await self.connections.get()
        await store_declared(self, store)
        return await Scheduler(maker_of(self)).run_once(store)

    def system_jobs(self, on_flow_end: OnFlowEnd | None = None) -> list[SystemJob]:
        """What every worker of this app, and its HTTP service, does beside the handlers' jobs.

        `on_flow_end` is told of each flow whose end is seen to here.
        """
        from accoda import operations
        from accoda.schedules import Scheduler, maker_of
        from accoda.webhooks.sender_loop import SenderLoop

        flow_jobs = self._flow_jobs(on_flow_end)
        jobs: list[SystemJob] = [Scheduler(maker_of(self)), *flow_jobs, *operations.system_jobs(self)]
        if self.schedules or self.handlers:
            jobs.append(_DeclaredSchedules(self))
        if self.transactions.outbox is not None:
            from accoda.transactions.relay import Relay

            jobs.append(Relay(self.transactions.outbox))
        try:
            jobs.append(SenderLoop())
        except MissingDriver as error:  # it needs an extra
            log.info("left to other processes: %s", error)
        return jobs

    def testing(self, *, inline: bool = False, now: datetime | int | None = None) -> Trial:
        """For tests: `with app.testing() as jobs:` keeps this app's jobs in memory, with a clock that you move.

        `inline`: a job runs at once, in the call that enqueues it. `now`: where the clock starts.
        """
        from accoda.app_testing import Trial

        return Trial(self, inline=inline, now=now)

    @cached_property
    def sync(self) -> SyncFace:
        """The same calls without `await`, for Django, Flask and scripts: `app.sync.enqueue(…)`."""
        return SyncFace(self, self.close)

    async def close(self) -> None:
        """Close this event loop's connection. The next call opens it again."""
        for demand in self.demands.values():
            await demand.close()
        await self.connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def add_handler(
        self, queue: str | None, function: Callable[..., Any], options: HandlerOptions
    ) -> Handler[Any, Any, Any]:
        """What `handler` does, without a decorator; `queue` None: the queue of the function's name."""
        name = queue if queue is not None else str(getattr(function, "__name__", ""))
        handler: Handler[Any, Any, Any] = Handler(self, name, function, options)
        handlers = self.handlers.get(name) or QueueHandlers(name)
        if handlers.by_type and name.partition(".")[0] in self.demands:
            raise InvalidInput("queue", f"{name!r} belongs to a demand, which has its own handler of it; name another")
        handlers.add(handler)
        self.handlers[name] = handlers
        return handler

    def remove_handler(self, handler: Handler[Any, Any, Any]) -> None:
        """Take a handler back that `add_handler` gave."""
        handlers = self.handlers[handler.queue]
        handlers.remove(handler)
        if not handlers.by_type:
            del self.handlers[handler.queue]

    def queue_spec(self, queue: str, type: str | None = None) -> QueueSpec:
        """How jobs of a queue and type are made: as their handler says, as `declare` said, or plainly."""
        handlers, specs = self.handlers.get(queue), self.specs
        if handlers is not None:
            spec = handlers.spec(type)
        else:
            spec = specs.get((queue, type)) or specs.get((queue, None)) or QueueSpec(queue)
        return spec if not self.enqueue_middleware else replace(spec, middleware=self.enqueue_middleware)

    def _patience(self) -> _Patience:
        """Limits how long calls wait for a store that is away. Those of a running job insist, like its worker."""
        return _Patience(self.connections.timeout if current.get() is None else math.inf)

    def now(self) -> int:
        """The present moment in milliseconds, by the app's clock."""
        return (self.connections.clock or _system).now()


class _Patience:
    """`limited_patience`, without the cost of a generator: this is on the way of every `enqueue`."""

    __slots__ = ("_before", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._before = patience_limit.set(min(self._seconds, patience_limit.get()))

    def __exit__(self, *raised: object) -> None:
        patience_limit.reset(self._before)


class SyncFace(LoopThread[App]):
    """`app.sync`: what `App` does, without `await`."""

    progress = Forward(App.progress)
    progress_of = Forward(App.progress_of)
    find = Forward(App.find)
    why = Forward(App.why)
    budget_views = Forward(App.budget_views)
    can_afford = Forward(App.can_afford)
    wait_for_tokens = Forward(App.wait_for_tokens)
    spending = Forward(App.spending)
    cancel = Forward(App.cancel)
    run_until_idle = Forward(App.run_until_idle)

    @cached_property
    def flows(self) -> SyncFlows:
        """`app.flows`, without `await`."""
        return SyncFlows(self.target.flows, self.run)

    @cached_property
    def lanes(self) -> SyncLanes:
        """`app.lanes`, without `await`."""
        return SyncLanes(self.target.lanes, self.run)

    def start(self, flow: Flow | Chain | Group, *, connection: object = None) -> FlowInfo:
        """Start a flow: `app.sync.start(flow)` is `await flow.start()`."""
        if connection is None:
            return self.run(flow.start())
        built = flow if isinstance(flow, Flow) else flow.flow()
        jobs = built.jobs()
        told = self.target.transactions.enqueue_blocking(connection, jobs, self.run)
        if told[0].what == "kept":
            return self.run(self.target.flow_of(built.id, jobs, told))
        return to_be_started(built.id, jobs)

    @contextmanager
    def batch(self, name: str, /, **options: Any) -> Iterator[SyncBatch]:
        """`app.batch`, without `async` and `await`: `with app.sync.batch("import-7", on_done=…) as batch:`."""
        batch = self.target.batch(name, **options)
        self.run(batch.__aenter__())
        try:
            yield SyncBatch(batch, self.run)
        except BaseException as error:
            self.run(batch.__aexit__(type(error), error, None))
            raise
        self.run(batch.__aexit__(None, None, None))

    def enqueue(
        self, queue: str, payload: object = None, *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> SyncEnqueued[Any]:
        """Enqueue one job; see `EnqueueOptions` for what may be said of it.

        With `connection`, a connection to a database whose calls block, the job is part of the transaction that is open
        there, and the statement is run in this thread.
        """
        if connection is None:
            return self._mine(self.run(self.target.enqueue(queue, payload, **options)))
        spec = self.target.queue_spec(queue, options.get("type"))
        job = new_job(spec, payload, self.target.now, options)
        return self._in_transaction(connection, [job], spec)[0]

    def enqueue_many(
        self, queue: str, payloads: Iterable[object], *, connection: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[SyncEnqueued[Any]]:
        """Enqueue a job for each payload, with the same options: all of them or none, in one round trip."""
        if connection is not None:
            spec, jobs = self.target.new_jobs(queue, payloads, options)
            return self._in_transaction(connection, jobs, spec)
        return [self._mine(told) for told in self.run(self.target.enqueue_many(queue, payloads, **options))]

    @overload
    def result(self, job: Enqueued[V], /, *, timeout: float | None = None) -> V: ...
    @overload
    def result(self, job: int, /, *, timeout: float | None = None, type: type[V]) -> V: ...
    @overload
    def result(self, job: int, /, *, timeout: float | None = None, type: Any = Any) -> Any: ...

    def result(self, job: Any, /, *, timeout: float | None = None, type: Any = Any) -> Any:
        """Wait until a job is done, and give back what its handler returned: see `App.result`."""
        return self.run(self.target.result(job, timeout=timeout, type=type))

    def _in_transaction(self, connection: object, jobs: Sequence[NewJob], spec: QueueSpec) -> list[SyncEnqueued[Any]]:
        told = self.target.transactions.enqueue_blocking(connection, jobs, self.run)
        return [self._mine(each.come_from(self.target, spec.result)) for each in told]

    def _mine(self, told: Enqueued[V]) -> SyncEnqueued[V]:
        mine = SyncEnqueued[V](told.id, told.what, told.waiters).come_from(self, told.result_type)
        return mine if told.outbox_id is None else mine.in_row(told.outbox_id)


class _DeclaredSchedules:
    """Stores the schedules that the code declares, as soon as the store answers; those that people made for its queues
    follow what its handlers say."""

    queue = "accoda.schedules"

    def __init__(self, app: App) -> None:
        self._app = app

    async def run_once(self, store: Store) -> int:
        from accoda.schedules import store_declared

        await store_declared(self._app, store)
        return 0

    async def run(self, store: Store) -> None:
        trouble = Backoff(0.2, 5.0)
        while True:
            try:
                await self.run_once(store)
                break
            except StorageError as error:
                log.warning("cannot store the declared schedules, trying again soon: %s", error)
                await trouble.nap()
        await asyncio.get_running_loop().create_future()  # once is enough


_system = SystemClock()
