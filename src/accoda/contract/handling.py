"""What a generated handler is called with: a context, the storage for its jobs, and the jobs as records."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, Unpack

from accoda.enqueue import EnqueueOptions
from accoda.errors import InvalidInput
from accoda.runtime.batch import Batch, Running


class Record(Protocol):
    """A generated record: it knows the job that it came from."""

    @property
    def job_id(self) -> int: ...


R = TypeVar("R", bound=Record)


class HandlerContext:
    """When a handler has to end. `batch` has the rest: headers, budgets, whether a lease was lost."""

    def __init__(self, batch: Batch[Any]) -> None:
        self.batch = batch

    @property
    def deadline(self) -> int | None:
        """The moment (milliseconds) at which the handler's `timeout` is over; None without one."""
        return self.batch.deadline

    @property
    def stopping(self) -> bool:
        """Whether the worker was asked to stop: a long call may end early, and `retry` what it did not do."""
        return self.batch.stopping


class JobStorage(Generic[R]):
    """What a handler says of its jobs. All of it is stored together, in one step, when the handler has ended; a job of
    which nothing is said comes back when its lease ends."""

    def __init__(self, batch: Batch[R]) -> None:
        self._batch = batch

    def done(self, *jobs: R) -> None:
        """These jobs are finished."""
        for job in jobs:
            self._batch.done(self._running(job))

    def retry(
        self,
        job: R,
        *,
        delay: float | timedelta | None = None,
        at: datetime | int | None = None,
        reason: str = "",
        error: BaseException | None = None,
        priority: int | str | None = None,
    ) -> None:
        """The job goes back: after `delay`, at the moment `at`, or when the queue's rule says. See `Batch.retry`."""
        self._batch.retry(self._running(job), delay=delay, at=at, reason=reason, error=error, priority=priority)

    def bury(self, job: R, reason: str) -> None:
        """The job goes to the dead letters."""
        self._batch.bury(self._running(job), reason)

    def put(
        self, queue: str, payload: object = None, *, after: R | None = None, **options: Unpack[EnqueueOptions]
    ) -> None:
        """Enqueue a job: in the step in which the job `after` is done, and not at all if it is not; without `after`,
        when these jobs are settled."""
        if after is not None:
            self._running(after).enqueue(queue, payload, **options)
        else:
            self._batch.enqueue(queue, payload, **options)

    def _running(self, job: R) -> Running[R]:
        found = self._by_id.get(job.job_id)
        if found is None:
            raise InvalidInput("job", f"{job.job_id} is none of the jobs that this handler was called with")
        return found

    @cached_property
    def _by_id(self) -> dict[int, Running[R]]:
        return {job.id: job for job in self._batch}


def opened(batch: Batch[R]) -> tuple[HandlerContext, JobStorage[R], list[R]]:
    """The three arguments of a generated handler."""
    return HandlerContext(batch), JobStorage(batch), [job.payload for job in batch]
