"""Records of runs that failed: which worker ran the job, when, and where in the code it failed. The document
`runs/{job id}`.

For people only, and nothing waits for it: a record is put into a short buffer, and a chore of the worker writes a few
of them a second. What finds no place is dropped, so a storm of failures costs no more than a few hundred of them. A job
that is done costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.envelope import type_of
from accoda.errors import RetryLater, StorageError, VersionConflict
from accoda.masking import NO_MASK, Mask
from accoda.model import Bury, Job, Outcome, Retry, clean
from accoda.payload import read_json
from accoda.retry import Failed, Result, cause_of
from accoda.runtime.batch import BatchRun, Running
from accoda.runtime.events import Explanation
from accoda.runtime.runners.raised import remote_trace, users_frames
from accoda.storage.protocol import Storage

PREFIX = "runs/"
KEPT = 3 * 86_400.0
MOST = 10
"""Runs of one job."""
LONGEST = 4096
"""Characters of a traceback: its end, which tells most."""
BUFFER = 200
"""Records that may wait to be written."""
A_SECOND = 20
"""Records that are written in one round of the chore, which comes every second."""
FRAMES = 30

Ended = Literal["retry", "bury"]

log = logging.getLogger("accoda.worker")


class Attempt(Struct, frozen=True):
    """One run that failed. `attempt` and `tries` are those of the job when it ran. Moments are by the worker's
    clock."""

    attempt: int
    worker: str
    started_at: int
    ended_at: int
    outcome: Ended
    error: str
    traceback: str = ""
    tries: int = 0


class AttemptLog:
    """The failed runs of one worker that wait to be written. Belongs to its event loop."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._waiting: deque[tuple[int, Attempt]] = deque()
        self.dropped = 0

    def note(self, batch: BatchRun, failed: tuple[Outcome, ...], now: int) -> None:
        """Note the jobs of a batch that failed. Never raises: a handler's error may do anything when it is shown."""
        free = BUFFER - len(self._waiting)
        self.dropped += max(0, len(failed) - free)
        if free <= 0:
            return
        jobs = {job.job.id: job for job in batch}
        for outcome in failed[:free]:
            job = jobs.get(outcome.lease.id)
            if job is not None:
                with suppress(Exception):
                    self._waiting.append((job.job.id, self._attempt(batch, job, outcome, now)))

    async def write(self, storage: Storage) -> int:
        """Write some of what waits, together; how many. What the store will not have is dropped."""
        some: dict[int, list[Attempt]] = {}
        count = min(A_SECOND, len(self._waiting))
        for _ in range(count):
            id, attempt = self._waiting.popleft()
            some.setdefault(id, []).append(attempt)
        try:
            await asyncio.gather(*(write_attempts(storage, id, attempts) for id, attempts in some.items()))
        except StorageError as error:
            log.info("failed runs are not noted: %s", error)
        return count

    def _attempt(self, batch: BatchRun, job: Running[Any], outcome: Outcome, now: int) -> Attempt:
        result = batch.results.get(job.job.id)
        error = result.error if isinstance(result, Failed) else None
        return Attempt(
            attempt=job.job.attempts,
            worker=self._worker,
            started_at=min(now, round(batch.since * 1000)),
            ended_at=now,
            outcome="bury" if isinstance(outcome, Bury) else "retry",
            error=getattr(outcome, "reason", "")[:LONGEST],  # without secrets already: see `batch.ending`
            traceback="" if error is None else trace_of(error, batch.mask(job.job)),
            tries=job.job.tries,
        )


async def read_attempts(storage: Storage, id: int) -> list[Attempt]:
    """The runs of a job that were noted, the oldest first."""
    found = await storage.read(f"{PREFIX}{id}")
    return [] if found is None else read_json(found.value, list[Attempt]) or []


async def write_attempts(storage: Storage, id: int, attempts: list[Attempt]) -> None:
    """Add runs to those of a job that are noted already; the oldest go."""
    name = f"{PREFIX}{id}"
    while True:
        found = await storage.read(name)
        before = [] if found is None else read_json(found.value, list[Attempt]) or []
        value = msgspec.json.encode([*before, *attempts][-MOST:])
        try:
            await storage.write(name, value, version=0 if found is None else found.version, ttl=KEPT)
            return
        except VersionConflict:  # another worker, which had the job before or after us
            continue


def explain(batch: BatchRun, outcome: Outcome) -> Explanation:
    """More about a job of a batch that failed. What ended a whole batch has its traceback with the first job only."""
    job = next(job for job in batch.taken if job.id == outcome.lease.id)
    result = batch.results.get(job.id)
    error = result.error if isinstance(result, Failed) else None
    asked = isinstance(outcome, Retry) and isinstance(error, RetryLater) and cause_of(error) is None
    trace = ""
    if error is not None and (result is not batch.shared or job is _first_with(batch, result)):
        with suppress(Exception):  # a handler's error may do anything when it is shown
            trace = trace_of(error, batch.mask(job))
    return replace(explain_job(job), asked=asked, traceback=trace)


def explain_job(job: Job) -> Explanation:
    """More about a job that was not run."""
    return Explanation(type_of(job.data), job.tries + 1)


def _first_with(batch: BatchRun, result: Result | None) -> Job:
    return next(job for job in batch.taken if batch.results.get(job.id) is result)


def trace_of(error: BaseException, mask: Mask = NO_MASK) -> str:
    """Where an error was raised, without our own frames around the handler; empty where it was said and not raised.

    Of a retry that was asked for an error, it is that of the error.
    """
    if (cause := cause_of(error)) is not None:
        error = cause
    trace, text = users_frames(error), remote_trace(error)  # as text it comes without frames of ours
    if text is None:
        if trace is None and error.__cause__ is None:
            return ""
        text = "".join(traceback.format_exception(type(error), error, trace, limit=-FRAMES))
    # Secrets first, then the cut: half of a short secret would not be found. What is far too long is cut before.
    text = mask.text(text[-16 * LONGEST :])
    return clean(text if len(text) <= LONGEST else "…" + text[1 - LONGEST :])
