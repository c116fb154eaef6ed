"""What ran in testing mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from accoda.errors import BuryJob
from accoda.retry import Failed, Finished
from accoda.runtime.batch import Batch
from accoda.runtime.middleware import Run

Ended = Literal["done", "failed", "buried"]


class JobRun(Struct, frozen=True):
    """One run of a job, as testing mode saw it."""

    queue: str
    id: int
    attempts: int
    payload: Any
    ended: Ended
    type: str | None = None
    error: BaseException | None = None


class RunLog:
    """A middleware that keeps every run, with its payload as people know it."""

    def __init__(self, shown: Callable[[str, Any], Any]) -> None:
        self._shown = shown
        self.runs: list[JobRun] = []

    async def __call__(self, batch: Batch[Any], run: Run, /) -> None:
        try:
            await run(batch)
        except BaseException as error:
            batch.finish(error)
            raise
        finally:
            for job in batch:
                result = batch.results.get(job.id, Finished())
                failure = result.error if isinstance(result, Failed) else None
                ended: Ended = "buried" if isinstance(failure, BuryJob) else "failed" if failure else "done"
                payload = self._shown(batch.queue, job.payload)
                self.runs.append(JobRun(batch.queue, job.id, job.attempts, payload, ended, job.type, failure))
