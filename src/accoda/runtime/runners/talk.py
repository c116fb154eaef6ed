"""What is said between the worker and one child about one batch, from the worker's side, in a thread of its own."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from accoda.errors import LeaseLost, ProcessDied, WorkerStopped
from accoda.model import NewJob
from accoda.retry import Finished
from accoda.runtime.batch import Batch, Running
from accoda.runtime.handler import Handler
from accoda.runtime.runners import wire
from accoda.runtime.runners.base import HopRun, over_time
from accoda.runtime.runners.children import TICK, ChildProcess
from accoda.runtime.runners.raised import Raised, unpack

PATIENCE = 3 * TICK
"""Seconds that a child has to skip a job that was stopped; if it runs it already, it is killed then."""


class ProcessRun(HopRun):
    """A batch whose handler runs in a child process. `halted`: nothing of it is wanted any more."""

    __slots__ = ("child", "halted")

    def __init__(self, batch: Batch[Any], timeout: float | None) -> None:
        super().__init__(batch, timeout)
        self.child: ChildProcess | None = None
        self.halted = False

    def waiting(self) -> list[Running[Any]]:
        results = self.batch.results
        return [] if self.halted else [job for job in self.batch.jobs if job.job.id not in results]


class Talk:
    """The conversation with one child about one batch."""

    def __init__(self, run: ProcessRun, handler: Handler[Any, Any, Any], jobs: list[Running[Any]]) -> None:
        self.run = run
        self.began = False
        self.over = False
        self._handler = handler
        self._jobs = deque(jobs)
        self._then: dict[int, list[NewJob]] = {}
        self._started = 0.0
        self._told = (False, 0)
        self._unwanted_since: float | None = None
        self._killed: tuple[Running[Any] | None, BaseException] | None = None

    @property
    def _current(self) -> Running[Any] | None:
        """The job that the child runs: the first that it has not answered for."""
        return self._jobs[0] if self._jobs else None

    def have(self, child: ChildProcess) -> None:
        """Give the child its work, and listen until it is done."""
        batch = self.run.batch
        child.send(wire.Work(batch.queue, [job.job for job in self._jobs], batch.deadline))
        while not self.over:
            message = child.receive(self._patience())
            if message is not None:
                self._hear(message)
            if self.began and not self.over and self._killed is None:
                self._look(child)

    def blame(self, died: ProcessDied) -> None:
        """The child is gone: who fails with it?"""
        run, current = self.run, self._current
        job, error = self._killed or (current, died)
        if self._handler.takes_batch:
            run.fix(run.ids(), error)
            run.error = run.error or error
        elif current is not None:
            if job is not current:
                # It was killed for a job that it had just finished, and had begun the next, which cannot be helped and
                # is not its fault.
                error = WorkerStopped("its process was stopped because of the job before it")
            run.fix([current.job.id], error)

    def _patience(self) -> float:
        if self.run.timeout is None or not self.began:
            return TICK
        return max(0.0, min(TICK, self._started + self.run.timeout - time.monotonic()))

    def _hear(self, message: wire.ToWorker) -> None:
        match message:
            case wire.Began():
                self.began = True
                self._started = time.monotonic()
            case wire.Said(id=id, final=final):
                self.run.batch.results[id] = wire.result_of(message, tuple(self._then.get(id, ())))
                if final:
                    self._next()
            case wire.Skipped(id=id):
                self.run.fix([id], LeaseLost("the lease was lost before the job began"))
                self._next()
            case wire.Follow(id=id, job=job):
                self._follow(id, job)
            case wire.Noted(note=note):
                if self.run.batch.notes is not None:
                    self.run.batch.notes.hear(note)
            case wire.Over(raised=raised):
                self._end(raised)

    def _next(self) -> None:
        self._jobs.popleft()
        self._started = time.monotonic()
        self._unwanted_since = None

    def _follow(self, id: int | None, job: NewJob) -> None:
        batch = self.run.batch
        if id is None:
            batch.loose.append(job)
            return
        then = self._then.setdefault(id, [])
        then.append(job)
        result = batch.results.get(id)
        if isinstance(result, Finished):
            batch.results[id] = Finished(result.result, tuple(then))

    def _end(self, raised: Raised | None) -> None:
        self.over = True
        if raised is not None:
            self.run.error = self.run.error or unpack(raised)
        elif self._handler.takes_batch and self.run.error is None:
            for id, then in self._then.items():  # jobs that are done because the handler returned
                self.run.batch.results.setdefault(id, Finished(None, tuple(then)))

    def _look(self, child: ChildProcess) -> None:
        """What happened on our side, while the child works?"""
        run, now = self.run, time.monotonic()
        told = (run.batch.stopping, len(run.batch.lost) + len(run.fixed))
        if told != self._told:
            self._told = told
            child.note(wire.Note(run.batch.stopping, [*run.batch.lost, *list(run.fixed)]))
        if run.timeout is not None and now >= self._started + run.timeout:
            self._kill(child, over_time(self._handler, run.timeout))
        elif run.halted or self._is_unwanted(now):
            self._kill(child, WorkerStopped("the job was stopped"))

    def _is_unwanted(self, now: float) -> bool:
        """Whether the child runs a job that was stopped. It may also be about to skip it: it gets a moment for that."""
        current = self._current
        if self._handler.takes_batch or current is None or current.job.id not in self.run.fixed:
            return False
        self._unwanted_since = self._unwanted_since or now
        return now - self._unwanted_since >= PATIENCE

    def _kill(self, child: ChildProcess, error: BaseException) -> None:
        # Whatever it said before is heard first; the end of its stream then comes as `ProcessDied`.
        self._killed = (self._current, error)
        child.kill()
