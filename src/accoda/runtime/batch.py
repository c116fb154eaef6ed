"""A batch: what its handler sees of it (`Batch`), and its way from the take to the settlement (`BatchRun`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, Generic, Protocol, TypeVar, Unpack

from msgspec import Struct

from accoda.budget.report import BudgetReporter, JobBudgetReporter
from accoda.enqueue import EnqueueOptions
from accoda.envelope import MARK, unwrap
from accoda.errors import BuryJob, HandlerLost, InvalidInput, RetryLater, WorkerStopped
from accoda.limits import ARRAY_KEYS
from accoda.masking import Mask
from accoda.model import Bury, Done, Job, NewJob, Outcome
from accoda.payload import Codec, UnreadablePayload
from accoda.retry import PLAIN, Failed, Finished, Limits, Result, decide, describe, finished, give_up, quarantine
from accoda.runtime.envelope_outcome import limits_of, mask_for, with_call

T = TypeVar("T")
MakeJob = Callable[[str, object, EnqueueOptions], NewJob]

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

    def enqueue(self, queue: str, payload: object = None, **options: Unpack[EnqueueOptions]) -> None:
        """Enqueue a follow-up in the same atomic step in which this job is done; not at all if it is not."""
        self.batch.follow(self, queue, payload, options)

    def __repr__(self) -> str:  # never the payload: it may be secret
        return f"<job {self.job.id} of {self.job.queue}, attempts {self.job.attempts}>"


current: ContextVar[Running[Any] | None] = ContextVar("accoda_running", default=None)
"""The job that a single handler runs at present."""


class Batch(Generic[T]):
    """The jobs handed to a handler together.

    Say `done`, `retry` or `bury` of each; the last word counts. The rest are done when the handler returns and retried
    by the queue's rule when it raises.
    """

    deadline: int | None = None
    """The moment (milliseconds) at which the handler's `timeout` is over; None without one."""
    stopping = False
    """Whether the worker was asked to stop: a long batch may end early, `retry` what it did not do."""
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
    ) -> None:
        """The job goes back: after `delay`, at the moment `at`, or when the queue's rule says."""
        self.fail(job, RetryLater(reason, delay=delay, at=at))

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

    def result_of(self, id: int) -> Result | None:
        """What is known of a job so far, with its follow-ups; None while nothing was said."""
        result = self.results.get(id)
        if self.follow_ups and isinstance(result, Finished) and (then := self.follow_ups.get(id)):
            return Finished(result.result, (*result.then, *then))
        return result

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
    """What a batch knows of the service of its queue."""

    queue: str
    runner: Runner
    codec: Codec[Any]
    secret: tuple[str, ...]
    lease: float
    timeout: float | None
    limits: Limits

    @property
    def new_job(self) -> MakeJob: ...


class BatchRun(Batch[Any]):
    """A batch on its way: taken, leases kept, run, settled. Belongs to the worker's event loop.

    Other threads touch it in three places only, each one atomic step: a handler's thread adds to `results`, the lease
    heartbeat replaces `lost` and reads the rest, `fix` goes through `dict.setdefault`.
    """

    # The turn of its processor.
    started = 0.0
    """When (`time.monotonic`) the turn began in which it was taken."""
    since = 0.0
    """The moment (seconds since the epoch) at which it was handed to its handler."""
    waited = 0.0
    duration = 0.0
    flushed: asyncio.Event | None = None
    """Set when the last early settlement has ended; None: there was none."""
    settling = False
    """Whether outcomes of it are on their way to the store."""
    leases_end_at: float | None = None
    """The moment (`time.monotonic`) from which on its leases are left to end; None: never."""

    # The run of its handler.
    running = False
    returned = False
    """Whether a handler of whole batches returned: what it said nothing of is done then."""
    error: BaseException | None = None
    """Why a handler of whole batches, or the middleware, ended early: what it raised, or what stopped it."""
    held_by: asyncio.Event | None = None
    """Set when the thread that was given up with this batch has ended; None: there is none."""
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
        self.settled: set[int] = set()
        self.fixed: dict[int, Result] = {}
        """Results of jobs that were stopped, whatever their handler says later."""
        self.tasks: dict[int, asyncio.Task[None]] = {}
        """Those that wait for something, by job; see `runners.loop`."""
        self._masks: dict[int | None, Mask] = {}
        """Of jobs that failed, and (None) of all jobs together."""

    async def run(self) -> None:
        """Hand it to its handler, and come back when each of its jobs has a result.

        Whatever the handler raises becomes the result of its job, or of the jobs of which nothing was said.
        """
        self.running = True
        try:
            await self.owner.runner.handle(self)
        except asyncio.CancelledError:  # only our caller's: those of handlers and middleware are caught further inside
            self.fix(self.ids(), WorkerStopped("the worker ended while the job ran"))
            raise
        except Exception as error:
            self.error = error
        finally:
            self.running = False
        if self.error is None and not self.returned and len(self.results) < len(self.taken):
            # Only what was returned is done. The jobs of a single handler have a result each; where nothing was said
            # and no handler of the whole batch returned, the run failed, in whatever way it came to nothing.
            self.error = HandlerLost(NO_RESULT)
        self.finish(self.error)
        if self.fixed:  # a handler that was stopped may have spoken since: too late
            self.results.update(self.fixed)

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
        """What becomes of the jobs of which something was said, but for those that are settled already."""
        results, follow_ups, settled = self.results, self.follow_ups, self.settled
        found: list[Outcome] = []
        for job in self.taken:
            id, data = job.id, job.data
            result = results.get(id)
            if result is None or id in settled:
                continue
            if result is PLAIN and id not in follow_ups and (not data or data[0] != MARK):
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

    def forget(self) -> None:
        """The batch is over. It knows its jobs and they know it: a cycle that only the collector would find.

        If its handler still asks for the jobs, they are made anew.
        """
        vars(self).pop("_running", None)


def open_batches(owner: BatchOwner, jobs: Sequence[Job]) -> tuple[list[BatchRun], list[Outcome]]:
    """The jobs as batches to be run one after the other, and the outcomes of those that must not run now.

    A job that lost a lease may have killed its worker, so it has a batch of its own, after the others are settled; from
    its second crash on it is quarantined. So a poison job takes no good one down with it again and again.
    """
    codec = owner.codec
    # A codec of another class may open a job in its own way, and only once. The usual one is asked only where there is
    # more to do than to decode a few bytes.
    decode = codec.decode_bare if type(codec) is Codec else None
    healthy: list[Job] = []
    payloads: list[Any] = []
    suspects: list[tuple[Job, Any]] = []
    not_run: list[Outcome] = []
    for job in jobs:
        data = job.data
        try:
            if decode is not None and 0 < len(data) <= ARRAY_KEYS and data[0] != MARK:
                payload = decode(data)
            else:
                payload = codec.open(job)
        except Exception as error:
            not_run.append(_unreadable(owner, job, error))
            continue
        if job.crashes:
            suspects.append((job, payload))
        else:
            healthy.append(job)
            payloads.append(payload)
    batches = [BatchRun(owner, healthy, payloads)] if healthy else []
    return (batches + _open_suspects(owner, suspects, not_run) if suspects else batches), not_run


def _open_suspects(owner: BatchOwner, suspects: list[tuple[Job, Any]], not_run: list[Outcome]) -> list[BatchRun]:
    """Each in a batch of its own, those with the fewest crashes first."""
    alone: list[BatchRun] = []
    for job, payload in sorted(suspects, key=lambda suspect: suspect[0].crashes):
        outcome = give_up(job, owner.limits) or quarantine(job)
        if outcome is not None:
            not_run.append(ending(owner, job, outcome))
        else:
            alone.append(BatchRun(owner, [job], [payload]))
    return alone


def _unreadable(owner: BatchOwner, job: Job, error: Exception) -> Outcome:
    if not isinstance(error, UnreadablePayload):
        try:
            owner.codec.decode(job.data)
        except UnreadablePayload as told:  # names the field that is wrong
            error = told
    return ending(owner, job, Bury(job.lease, describe(error)))


def ending(owner: BatchOwner, job: Job, outcome: Outcome, mask: Mask | None = None) -> Outcome:
    """The outcome without secrets, and with the call of the job's webhook if it asks for one."""
    data = job.data
    if (not data or data[0] != MARK) and (type(outcome) is Done or not owner.secret):
        return outcome
    return with_call(outcome, job, owner.secret, mask or mask_for(job, owner.secret, owner.codec))
