"""What a handler sees: a `Batch` of `Running` jobs, and what it says of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, Generic, TypeVar, Unpack

from msgspec import Struct

from accoda.enqueue import EnqueueOptions
from accoda.envelope import unwrap
from accoda.errors import BuryJob, InvalidInput, RetryLater
from accoda.model import Job, NewJob
from accoda.retry import PLAIN, Failed, Finished, Result, finished
from accoda.runtime.notes import JobNotes, Notes

T = TypeVar("T")
MakeJob = Callable[[str, object, EnqueueOptions], NewJob]


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
    def budget(self) -> JobNotes:
        """To say what the API said of the queue's budgets: `app.current.budget.observe(left=…)`, `.spent(3)`."""
        return JobNotes(self, self.batch.budget)

    def enqueue(self, queue: str, payload: object = None, **options: Unpack[EnqueueOptions]) -> None:
        """Enqueue a follow-up in the same atomic step in which this job is done; not at all if it is not."""
        self.batch.follow(self, queue, payload, options)

    def __repr__(self) -> str:  # never the payload: it may be secret
        return f"<job {self.job.id} of {self.job.queue}, attempts {self.job.attempts}>"


current: ContextVar[Running[Any] | None] = ContextVar("accoda_running", default=None)
"""The job that a single handler runs at present."""


class Batch(Generic[T]):
    """The jobs handed to a handler together.

    Say `done`, `retry` or `bury` of each; what you say last counts. The rest are done when the handler returns and
    retried by the queue's rule when it raises.
    """

    _running: list[Running[T]] | None = None

    def __init__(self, queue: str, jobs: Sequence[Job], payloads: Sequence[T], make_job: MakeJob) -> None:
        self.queue = queue
        self.taken = jobs
        """The jobs as they were taken."""
        self._payloads = payloads
        self.results: dict[int, Result] = {}
        self.lost: set[int] = set()
        self.settled: set[int] = set()
        self.deadline: int | None = None
        """The moment (milliseconds) at which the handler's `timeout` is over; None without one."""
        self.stopping = False
        """Whether the worker was asked to stop: a long batch may end early, `retry` what it did not do."""
        self.plain = False
        """Whether it is known that all its jobs are on their first run and none has an envelope."""
        self.notes: Notes | None = None
        self.loose: list[NewJob] = []
        self._then: dict[int, list[NewJob]] = {}
        self._make_job = make_job

    @property
    def jobs(self) -> list[Running[T]]:
        """The jobs with their payloads: always the same objects, made when somebody first asks for them."""
        # The keeper's thread may ask while the worker's asks or forgets. One look, and `setdefault` is one atomic step:
        # of two who ask for the first time, both get what one of them has made.
        found = self._running
        return found if found is not None else vars(self).setdefault("_running", list(self._each()))

    def passing(self) -> Iterator[Running[T]]:
        """The jobs one after the other, for one who needs each of them only once: nothing is kept of them."""
        found = self._running
        return self._each() if found is None else iter(found)

    def forget(self) -> None:
        """The batch is over. It knows its jobs and they know it: a ring, and only the collector would find it.

        Whoever still has the batch in hand may go on asking for its jobs: they are made anew.
        """
        vars(self).pop("_running", None)

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
    def budget(self) -> Notes:
        """To say what the API said of the queue's budgets: from any thread, and applied when the batch is settled."""
        if self.notes is None:
            raise InvalidInput("budget", f"the queue {self.queue} has none; name it: @app.handler(…, budget='…')")
        return self.notes

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
        self._mine(job)
        self.results[job.id] = Failed(RetryLater(reason, delay=delay, at=at))

    def bury(self, job: Running[T], reason: str) -> None:
        """The job goes to the dead letters."""
        self._mine(job)
        self.results[job.id] = Failed(BuryJob(reason))

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
        self._then.setdefault(job.id, []).append(follow_up)

    def result_of(self, job: Running[T] | Job) -> Result | None:
        """What is known of a job so far, with its follow-ups; None while nothing was said."""
        result = self.results.get(job.id)
        if self._then and isinstance(result, Finished) and (then := self._then.get(job.id)):
            return Finished(result.result, (*result.then, *then))
        return result

    def all_plain(self) -> bool:
        """Whether every job went well and left nothing, so that there is nothing to decide. False: look at each."""
        results = self.results
        return (
            self.plain
            and not self._then
            and not self.settled
            and len(results) == len(self.taken)
            and list(results.values()).count(PLAIN) == len(results)
        )

    def finish(self, error: BaseException | None = None) -> None:
        """The handler returned (or raised `error`): say so of every job of which nothing was said yet."""
        if len(self.results) < len(self.taken):
            result = PLAIN if error is None else Failed(error)
            for job in self.taken:
                self.results.setdefault(job.id, result)
        if error is not None:
            self.loose.clear()

    def _mine(self, job: Running[T]) -> None:
        if job.batch is not self:
            raise InvalidInput("job", f"{job!r} is not of this batch")
