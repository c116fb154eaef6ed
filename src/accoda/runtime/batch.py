"""A batch: what its handler sees of it (`Batch`), and its way from the take to the settlement (`BatchRun`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from accoda.budget.report import BudgetReporter, JobBudgetReporter
from accoda.enqueue import EnqueueOptions, FollowUpOptions, inherited
from accoda.envelope import HEAD, MARK, type_of, unwrap
from accoda.errors import BuryJob, HandlerLost, InvalidInput, RetryLater, WorkerStopped
from accoda.flows.builder import RunningFlow
from accoda.flows.members import Parents, flow_place, parents_of
from accoda.handler_options import JobTarget
from accoda.limits import ARRAY_KEYS
from accoda.masking import Mask
from accoda.model import Bury, Done, Job, NewJob, Outcome, clean
from accoda.payload import Codec, UnreadablePayload
from accoda.priority import read_priority
from accoda.retry import (
    PLAIN,
    QUARANTINED,
    Failed,
    Finished,
    Limits,
    Result,
    decide,
    describe,
    finished,
    give_up,
    quarantine,
)
from accoda.runtime.envelope_outcome import MakeJob, limits_of, mask_for, with_call, with_dead_job
from accoda.runtime.events import HandlerStats
from accoda.runtime.unhandled_types import give_back

T = TypeVar("T")

COUNTED = 1_000_000_000
"""The most that a handler may count of one batch."""
NO_RESULT = "the run ended without a result: no handler returned, and no middleware said what becomes of the job"


class Running(Struct, Generic[T], eq=False):
    """A job while it runs, with its payload decoded.

    `told_at` is when (`time.monotonic`) its progress was last stored.
    """

    job: Job
    payload: T
    batch: Batch[T]
    told_at: float = 0.0

    @property
    def id(self) -> int:
        return self.job.id

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def attempts(self) -> int:
        """How many times the job came back: 0 on the first run."""
        return self.job.attempts

    @property
    def prev_start_time(self) -> int | None:
        """When the run before this one could start, in milliseconds; None on the first."""
        return self.job.prev_start_time

    @property
    def name(self) -> str | None:
        """What the job was called when it was enqueued, for people."""
        return unwrap(self.job.data)[0].name

    @property
    def type(self) -> str | None:
        """The job's type; None: it has none, and is its queue's only kind or handled by what handles the rest."""
        return type_of(self.job.data)

    @property
    def lane(self) -> str | None:
        """Whom the job belongs to, such as a customer; None: it has no lane."""
        return self.job.lane

    @property
    def headers(self) -> Mapping[str, str]:
        """The texts that its producer sent along. Read-only."""
        return MappingProxyType(unwrap(self.job.data)[0].headers)

    @property
    def schedule(self) -> str | None:
        """The schedule whose tick this job is; None for any other job."""
        return unwrap(self.job.data)[0].schedule

    @property
    def tick(self) -> int | None:
        """The moment (milliseconds) of its schedule that this job stands for, however late it runs."""
        return unwrap(self.job.data)[0].tick

    @property
    def lost(self) -> bool:
        """Whether its lease was lost meanwhile (cancelled, replaced, given to another): its outcome will not count."""
        return self.job.id in self.batch.lost

    @property
    def budget(self) -> JobBudgetReporter:
        """To report what the API said of the queue's budgets: `app.current.budget.observe(left=…)`, `.spent(3)`."""
        return JobBudgetReporter(self, self.batch.budget)

    @property
    def parents(self) -> Parents:
        """The results of the nodes before this one in its flow, by name."""
        return parents_of(self.job)

    @property
    def flow(self) -> RunningFlow:
        """The job's flow: `app.current.flow.add(…)` adds nodes to it."""
        return self.batch.flow_of(self)

    def enqueue(self, queue: str, payload: object = None, **options: Unpack[FollowUpOptions]) -> None:
        """Enqueue a follow-up in the same atomic step in which this job is done; not at all if it is not."""
        said = inherited(self.headers, options) if "inherit_headers" in options else options
        self.batch.follow(self, queue, payload, said)

    def __repr__(self) -> str:  # never the payload: it may be secret
        return f"<job {self.job.id} of {self.job.queue}, attempts {self.job.attempts}>"


current: ContextVar[Running[Any] | None] = ContextVar("accoda_running", default=None)
"""The job that a single handler runs at present."""
current_batch: ContextVar[Batch[Any] | None] = ContextVar("accoda_batch", default=None)
"""The batch that is run at present: also in middleware, and in handlers of whole batches."""


class Batch(Generic[T]):
    """The jobs handed to a handler together.

    Say `done`, `retry` or `bury` of each; the last word counts. The rest are done when the handler returns (with
    `settle="explicit"`: left to their leases) and retried by the queue's rule when it raises.
    """

    deadline: int | None = None
    """The moment (milliseconds) at which the handler's `timeout` is over; None without one."""
    stopping = False
    """Whether the worker was asked to stop: a long batch may end early, `retry` what it did not do."""
    worker = ""
    """The id of the worker that runs it."""
    reporter: BudgetReporter | None = None
    shared: Result | None = None
    """The result of the jobs of which the handler said nothing itself."""
    _running: list[Running[T]] | None = None

    def __init__(self, queue: str, jobs: Sequence[Job], payloads: Sequence[T], make_job: MakeJob) -> None:
        self.queue = queue
        self.taken = jobs
        """The jobs as they were taken."""
        self.results: dict[int, Result] = {}
        self.lost: set[int] = set()
        self.loose: list[NewJob] = []
        """Follow-ups of the batch as a whole."""
        self.follow_ups: dict[int, list[NewJob]] = {}
        """By job, for those that are done."""
        self._payloads = payloads
        self._make_job = make_job
        self._flows: dict[int, RunningFlow] = {}

    @property
    def jobs(self) -> list[Running[T]]:
        """The jobs with their payloads: always the same objects, made on first use."""
        # The heartbeat's thread may ask while the worker's asks or forgets. One read, and `setdefault` is one atomic
        # step: of two threads that ask for the first time, both get the list of one of them.
        found = self._running
        return found if found is not None else vars(self).setdefault("_running", list(self._each()))

    def passing(self) -> Iterator[Running[T]]:
        """The jobs one after the other, for a caller that needs each of them once: nothing is kept of them."""
        found = self._running
        return self._each() if found is None else iter(found)

    def _each(self) -> Iterator[Running[T]]:
        return map(Running, self.taken, self._payloads, repeat(self))

    def __iter__(self) -> Iterator[Running[T]]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.taken)

    def __getitem__(self, index: int) -> Running[T]:
        return self.jobs[index]

    def __repr__(self) -> str:
        return f"<batch of {len(self.taken)} jobs of {self.queue}>"

    @property
    def budget(self) -> BudgetReporter:
        """To report what the API said of the queue's budgets: from any thread, applied when the batch is settled."""
        if self.reporter is None:
            raise InvalidInput("budget", f"the queue {self.queue} has none; name it: @app.handler(…, budget='…')")
        return self.reporter

    def done(self, job: Running[T], result: object = None) -> None:
        """The job is finished. `result` is kept if its queue keeps finished jobs; one that cannot be buries the job."""
        self._mine(job)
        self.results[job.id] = finished(result)

    def retry(
        self,
        job: Running[T],
        *,
        delay: float | timedelta | None = None,
        at: datetime | int | None = None,
        reason: str = "",
        error: BaseException | None = None,
        priority: int | str | None = None,
    ) -> None:
        """The job goes back: after `delay`, at the moment `at`, or when the queue's rule says.

        With `error` it counts as an error too, and the error is its reason. With `priority` (a `Priority`) it has that
        priority from then on.
        """
        later = RetryLater(reason, delay=delay, at=at, priority=None if priority is None else read_priority(priority))
        later.__cause__ = error
        self.fail(job, later)

    def bury(self, job: Running[T], reason: str) -> None:
        """The job goes to the dead letters."""
        self.fail(job, BuryJob(reason))

    def fail(self, job: Running[T], error: BaseException) -> None:
        """The job failed with this error: the queue's rule says when it runs again."""
        self._mine(job)
        self.results[job.id] = Failed(error)

    def enqueue(self, queue: str, payload: object = None, **options: Unpack[EnqueueOptions]) -> None:
        """Enqueue a follow-up when this batch is settled: in the same atomic step as the first job that is done.

        If no job is done, it is enqueued just before the others are settled (twice, perhaps, if the store's answer is
        lost); if the handler raises, not at all.
        """
        self.loose.append(self._make_job(queue, payload, options))

    def follow(self, job: Running[T], queue: str, payload: object, options: EnqueueOptions) -> None:
        """What `Running.enqueue` does."""
        self.then(job, self._make_job(queue, payload, options))

    def then(self, job: Running[T], follow_up: NewJob) -> None:
        """Enqueue this in the step in which the job is done."""
        self.follow_ups.setdefault(job.id, []).append(follow_up)

    def flow_of(self, job: Running[T]) -> RunningFlow:
        """What `Running.flow` gives: always the same object, made on first use."""
        place = flow_place(job.job)
        if place is None:
            raise InvalidInput("flow", f"job {job.id} is in no flow; jobs of flows are added by app.flow(…).add(…)")
        if job.id not in self._flows:
            self._flows[job.id] = RunningFlow(self._make_job, place.id, place.node, partial(self.then, job))
        return self._flows[job.id]

    def result_of(self, id: int) -> Result | None:
        """What is known of a job so far, with its follow-ups; None while nothing was said."""
        result = self.results.get(id)
        if self.follow_ups and isinstance(result, Finished) and (then := self.follow_ups.get(id)):
            return Finished(result.result, (*result.then, *then))
        return result

    def mask(self, job: Job) -> Mask:
        """What hides the job's secrets in a text."""
        return mask_for(job)

    def finish(self, error: BaseException | None = None) -> None:
        """The handler of the whole batch returned, or the run ended with `error`: say so of every other job."""
        if len(self.results) < len(self.taken):
            result = PLAIN if error is None else Failed(error)
            self.shared = result
            for job in self.taken:
                self.results.setdefault(job.id, result)
        if error is not None:
            self.loose.clear()

    def _mine(self, job: Running[T]) -> None:
        if job.batch is not self:
            raise InvalidInput("job", f"{job!r} is not of this batch")


class Runner(Protocol):
    """Runs the batches of one handler: on the loop, in a thread, in a process."""

    @property
    def problem(self) -> str:
        """Why it cannot run batches at present; empty if it can."""
        ...

    async def start(self) -> None:
        """Have ready what the first batch needs. `CannotStart` if that cannot be had."""
        ...

    async def handle(self, batch: BatchRun) -> None:
        """Call the handler for the jobs that have no result yet, and come back when it has ended for each of them.

        Single jobs run at the same time, each on its own: one that ends leaves `batch.calls` and calls `batch.tell`.

        What it raises for a single job is that job's result; what it raises for a whole batch is raised here.
        `batch.timeout` (seconds) holds for one call of the handler; a call that takes longer fails with
        `HandlerTimeout`. If this is cancelled, the handler is stopped and `CancelledError` goes on to the caller.
        """
        ...

    def stop(self, batch: BatchRun, ids: Collection[int], error: BaseException) -> bool:
        """Stop running these jobs of a batch: what is not finished fails with `error`, as soon as it can be stopped.

        A handler that takes a whole batch is stopped only when none of its unfinished jobs is left. Call it on the
        loop of the run. A batch that is not being run is left alone. True: no job of it is left to run.
        """
        ...

    async def close(self) -> None:
        """Let go of threads and processes."""
        ...


class BatchOwner(Protocol):
    """What a batch knows of the handler that runs it."""

    queue: str
    number: int | None
    type: str | None
    takes_batch: bool
    explicit: bool
    """Whether jobs of which a handler of batches says nothing are left to their leases."""
    renew: bool
    """Whether the leases of its jobs are extended while they run."""
    alone: bool
    """Whether each job is a batch of its own."""
    runner: Runner
    codec: Codec[Any]
    open_bare: Callable[[bytes], Any] | None
    """Decodes a payload that has no envelope; None: the codec opens every job in its own way."""
    secret: tuple[str, ...]
    on_dead: JobTarget | None
    lease: float
    timeout: float | None
    limits: Limits

    @property
    def new_job(self) -> MakeJob: ...


class BatchRun(Batch[Any]):
    """Jobs of one take on their way: leases kept, run, settled. Belongs to the worker's event loop.

    The jobs of a handler of batches end together. Those of a single handler run at the same time and end, and are
    settled, each on its own.

    Other threads touch it in three places only, each one atomic step: a handler's thread adds to `results`, the lease
    heartbeat replaces `lost` and reads the rest, `fix` goes through `dict.setdefault`.
    """

    # The turn of its processor.
    started = 0.0
    """When (`time.monotonic`) the turn began in which it was taken."""
    began = 0.0
    """When (`time.monotonic`) it was handed to its handler."""
    since = 0.0
    """The same moment in seconds since the epoch."""
    waited = 0.0
    task: asyncio.Task[None] | None = None
    """Its run, while it lasts."""
    ended = False
    """Whether its run is over: every job has its result, or is left to its lease."""
    settling: Collection[int] = ()
    """The jobs whose outcomes are on their way to the store."""
    tell: Callable[[], None] = staticmethod(lambda: None)
    """To be called on the loop when a job has ended while others run."""
    hooks = True
    """Whether some of its jobs may have a webhook."""
    leases_end_at: float | None = None
    """The moment (`time.monotonic`) from which on its leases are left to end; None: never."""

    # The run of its handler.
    running = False
    returned = False
    """Whether a handler of whole batches returned: what it said nothing of is done then."""
    error: BaseException | None = None
    """Why a handler of whole batches, or the middleware, ended early: what it raised, or what stopped it."""
    stats: HandlerStats | None = None
    """What the handler of the batch returned, where it counts by itself."""
    hold: Callable[[asyncio.Future[None]], None] = staticmethod(lambda ended: None)
    """To be called for each thread that is given up, with what is done when it has ended."""
    over: asyncio.Future[None] | None = None
    """Done when the last task has ended or was given up. None while nothing waits for it: more tasks may come yet."""
    todo: Iterator[Running[Any]]
    """The jobs that no task has begun yet."""
    all_begun = False
    driver: asyncio.Task[None] | None = None
    driving: int | None = None
    """What the driver is at: the id of a job, or the whole batch; None: it has not begun."""

    def __init__(self, owner: BatchOwner, jobs: Sequence[Job], payloads: Sequence[Any]) -> None:
        super().__init__(owner.queue, jobs, payloads, owner.new_job)
        self.owner = owner
        self.lease = owner.lease
        self.timeout = owner.timeout
        self.extended_at = time.monotonic()
        """When (`time.monotonic`) its leases last began."""
        self.lanes = {job.id: job.lane for job in jobs if job.lane is not None}
        self.settled: set[int] = set()
        self.fixed: dict[int, Result] = {}
        """Results of jobs that were stopped, whatever their handler says later."""
        self.calls: dict[int, Any] = {}
        """The calls of the handler that are under way, by job: tasks, or turns in threads."""
        self._masks: dict[int | None, Mask] = {}
        """Of jobs that failed, and (None) of all jobs together."""

    async def run(self) -> None:
        """Hand it to its handler, and come back when each of its jobs has a result.

        Whatever the handler raises becomes the result of its job, or of the jobs of which nothing was said.
        """
        self.running = True
        token = current_batch.set(self)
        try:
            await self.owner.runner.handle(self)
        except asyncio.CancelledError:  # only our caller's: those of handlers and middleware are caught further inside
            self.fix(self.ids(), WorkerStopped("the worker ended while the job ran"))
            raise
        except Exception as error:
            self.error = error
        finally:
            self.running = False
            current_batch.reset(token)
        if self.error is None and not self.returned and len(self.results) < len(self.taken):
            # Only what was returned is done. The jobs of a single handler have a result each; where nothing was said
            # and no handler of the whole batch returned, the run failed, in whatever way it came to nothing.
            self.error = HandlerLost(NO_RESULT)
        if not (self.returned and self.owner.explicit and self.error is None):
            self.finish(self.error)
        if self.fixed:  # a handler that was stopped may have spoken since: too late
            self.results.update(self.fixed)

    def keep(self, value: object) -> None:
        """The handler of the batch returned this."""
        self.returned = True
        if isinstance(value, HandlerStats):
            self.stats = self._without_secrets(value)

    def _without_secrets(self, stats: HandlerStats) -> HandlerStats:
        """What a handler counted. It may have given anything: what is no count is 0, and an error becomes its text."""
        given = {name: getattr(stats, name) for name in ("processed", "errors", "retried", "buried")}
        counts = {name: n if type(n) is int and 0 <= n <= COUNTED else 0 for name, n in given.items()}
        error: object = stats.last_error
        text = describe(error) if isinstance(error, BaseException) else clean(str(error or ""))
        if text:
            text = Mask.union(mask_for(job, self.owner.secret, self.owner.codec) for job in self.taken).text(text)
        return replace(stats, **counts, last_error=text)

    def ids(self) -> list[int]:
        return [job.id for job in self.taken]

    def has_all_results(self) -> bool:
        results = self.results
        return len(results) >= len(self.taken) and all(job.id in results for job in self.taken)

    def fix(self, ids: Iterable[int], error: BaseException) -> bool:
        """Fail those of the jobs that have no result, whatever is said of them later. False: there was none."""
        failed = Failed(error)
        fixed = False
        for id in ids:
            # `setdefault` is one atomic step: of the handler's thread and this one, exactly one decides.
            if self.results.setdefault(id, failed) is failed:
                self.fixed[id] = failed
                fixed = True
        return fixed

    def raise_error(self) -> None:
        """What ended the handler goes through the middleware, unless it would end more than this batch."""
        error, self.error = self.error, None  # a middleware may swallow it
        if isinstance(error, Exception):
            raise error
        if error is not None:  # sys.exit, or a CancelledError of the handler's own making
            self.finish(error)

    def outcomes(self) -> list[Outcome]:
        """What becomes of the jobs that have ended, but for those that are settled already."""
        results, follow_ups, settled, calls, hooks = self.results, self.follow_ups, self.settled, self.calls, self.hooks
        found: list[Outcome] = []
        for job in self.taken:
            id = job.id
            result = results.get(id)
            if result is None or id in settled or id in calls:
                continue
            if result is PLAIN and id not in follow_ups and not (hooks and unwrap(job.data)[0].hook):
                found.append(Done(job.lease))  # it went well and left nothing: nothing to decide
            else:
                found.append(self.decide(job))
        return found

    def decide(self, job: Job) -> Outcome:
        """What becomes of one job of which something was said."""
        result, owner = self.result_of(job.id), self.owner
        assert result is not None
        outcome = decide(job, result, limits_of(job, owner.limits))
        return ending(owner, job, outcome, None if type(outcome) is Done else self.mask(job))

    def mask(self, job: Job) -> Mask:
        """The mask of a job that failed. What a handler of whole batches raises may quote any job of the batch."""
        result = self.results.get(job.id)
        of_all = isinstance(result, Failed) and result is self.shared and len(self.taken) > 1
        key = None if of_all else job.id
        if key not in self._masks:
            jobs = self.taken if of_all else (job,)
            self._masks[key] = Mask.union(mask_for(one, self.owner.secret, self.owner.codec) for one in jobs)
        return self._masks[key]

    def unsettled(self) -> list[Job]:
        """The jobs whose leases are still ours. Those that are finished but not settled need them as well."""
        return [job for job in self.taken if job.id not in self.settled and job.id not in self.lost]

    def left(self) -> list[Job]:
        """After the run: the jobs of which a handler with `settle="explicit"` said nothing."""
        return [job for job in self.taken if job.id not in self.results]

    def forget(self) -> None:
        """The batch is over. It knows its jobs and they know it: a cycle that only the collector would find.

        If its handler still asks for the jobs, they are made anew.
        """
        vars(self).pop("_running", None)


class Opened(Struct):
    """The jobs of a take: `batches` to be run now, `suspects` to be run one by one when those are settled, and the
    outcomes of those that must not run."""

    batches: list[BatchRun]
    suspects: list[BatchRun]
    not_run: list[Outcome]


class JobOwners(Protocol):
    """What knows which handler runs a job."""

    @property
    def untyped(self) -> BatchOwner | None:
        """What runs jobs without a type."""
        ...

    def owner_of(self, type: str | None) -> BatchOwner | None:
        """What runs jobs of this type; None: nothing here does."""
        ...


def open_jobs(owners: JobOwners, jobs: Sequence[Job]) -> Opened:
    """Decode the jobs of a take, and sort them by the handler that runs them.

    A job that lost a lease may have killed its worker, so it has a batch of its own, after the others are settled; from
    its second crash on it is quarantined. So a poison job takes no good one down with it again and again.
    """
    found: dict[int, tuple[BatchOwner, list[Job], list[Any]]] = {}
    hooks = False
    opened = Opened([], [], [])
    heads: dict[bytes, BatchOwner | None] = {}  # jobs of a type mostly have the same metadata: those are read once
    for job in jobs:
        data, owner = job.data, owners.untyped
        if data and data[0] == MARK:
            end = HEAD + int.from_bytes(data[1:HEAD], "big")
            head, data = data[:end], data[end:]
            if head in heads:
                owner = heads[head]
            else:
                metadata, data = unwrap(job.data)
                owner = owners.owner_of(metadata.type)
                hooks = hooks or metadata.hook is not None
                if data is not job.data:  # it could be read
                    heads[head] = owner
        if owner is None:
            opened.not_run.append(give_back(job))
            continue
        try:
            bare = owner.open_bare if 0 < len(data) <= ARRAY_KEYS else None
            payload = owner.codec.open(job) if bare is None else bare(data)
        except Exception as error:
            opened.not_run.append(_unreadable(owner, job, error))
            continue
        # A first crash of a job whose lease ended on purpose is none, and will be taken back.
        if job.crashes and ((owner.renew and not owner.explicit) or job.crashes >= QUARANTINED):
            _add_suspect(owner, job, payload, opened)
        elif owner.alone:
            opened.batches.append(BatchRun(owner, [job], [payload]))
        elif (group := found.get(id(owner))) is not None:
            group[1].append(job)
            group[2].append(payload)
        else:
            found[id(owner)] = owner, [job], [payload]
    for group in found.values():
        opened.batches.append(batch := BatchRun(*group))
        batch.hooks = hooks
    opened.suspects.sort(key=lambda batch: batch.taken[0].crashes)  # those with the fewest crashes first
    return opened


def _add_suspect(owner: BatchOwner, job: Job, payload: Any, opened: Opened) -> None:
    outcome = give_up(job, owner.limits) or quarantine(job)
    if outcome is not None:
        opened.not_run.append(ending(owner, job, outcome))
    else:
        opened.suspects.append(BatchRun(owner, [job], [payload]))


def _unreadable(owner: BatchOwner, job: Job, error: Exception) -> Outcome:
    if not isinstance(error, UnreadablePayload):
        try:
            owner.codec.decode(job.data)
        except UnreadablePayload as told:  # names the field that is wrong
            error = told
    return ending(owner, job, Bury(job.lease, describe(error)))


def ending(owner: BatchOwner, job: Job, outcome: Outcome, mask: Mask | None = None) -> Outcome:
    """The outcome without secrets, with the call of the job's webhook if it asks for one, and what `on_dead` makes."""
    data, done = job.data, type(outcome) is Done
    if data and data[0] == MARK:
        if done and unwrap(data)[0].hook is None:
            return outcome
    elif done or not (owner.secret or owner.on_dead):
        return outcome
    outcome = with_call(outcome, job, owner.secret, mask or mask_for(job, owner.secret, owner.codec))
    return outcome if owner.on_dead is None else with_dead_job(outcome, job, owner.on_dead, owner.new_job)
