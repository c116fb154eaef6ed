"""What a handler sees: a `Batch` of `Running` jobs, and what it says of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, Unpack

from accoda.enqueue import EnqueueOptions
from accoda.envelope import unwrap
from accoda.errors import BuryJob, InvalidInput, RetryLater
from accoda.model import Job, NewJob
from accoda.retry import PLAIN, Failed, Finished, Result, finished
from accoda.runtime.notes import JobNotes, Notes

T = TypeVar("T")
MakeJob = Callable[[str, object, EnqueueOptions], NewJob]


class Running(Generic[T]):
    """A job while it runs, with its payload decoded."""

    __slots__ = ("batch", "job", "payload", "told_at")

    def __init__(self, job: Job, payload: T, batch: Batch[T]) -> None:
        self.job = job
        self.payload = payload
        self.batch = batch
        self.told_at = 0.0
        """When (`time.monotonic`) its progress was last stored."""

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

    def __init__(self, queue: str, jobs: Sequence[Job], payloads: Sequence[T], make_job: MakeJob) -> None:
        self.queue = queue
        self.jobs = [Running(job, payload, self) for job, payload in zip(jobs, payloads, strict=True)]
        self.results: dict[int, Result] = {}
        self.lost: set[int] = set()
        self.settled: set[int] = set()
        self.deadline: int | None = None
        """The moment (milliseconds) at which the handler's `timeout` is over; None without one."""
        self.stopping = False
        """Whether the worker was asked to stop: a long batch may end early, `retry` what it did not do."""
        self.notes: Notes | None = None
        self.loose: list[NewJob] = []
        self._then: dict[int, list[NewJob]] = {}
        self._make_job = make_job

    def __iter__(self) -> Iterator[Running[T]]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    def __getitem__(self, index: int) -> Running[T]:
        return self.jobs[index]

    def __repr__(self) -> str:
        return f"<batch of {len(self.jobs)} jobs of {self.queue}>"

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

    def result_of(self, job: Running[T]) -> Result | None:
        """What is known of a job so far, with its follow-ups; None while nothing was said."""
        result = self.results.get(job.job.id)
        if self._then and isinstance(result, Finished) and (then := self._then.get(job.id)):
            return Finished(result.result, (*result.then, *then))
        return result

    def finish(self, error: BaseException | None = None) -> None:
        """The handler returned (or raised `error`): say so of every job of which nothing was said yet."""
        result = PLAIN if error is None else Failed(error)
        for job in self.jobs:
            self.results.setdefault(job.job.id, result)
        if error is not None:
            self.loose.clear()

    def _mine(self, job: Running[T]) -> None:
        if job.batch is not self:
            raise InvalidInput("job", f"{job!r} is not of this batch")
