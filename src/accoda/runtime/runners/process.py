"""Handlers in processes of their own: for work that keeps a processor busy, or may crash.

A job, or a batch, goes to one child, and a thread of the worker talks with it: large payloads do not block the loop. A
child that dies takes only what it ran with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from accoda.errors import CannotStart, ProcessDied, WorkerStopped
from accoda.runtime.batch import BatchRun, Running
from accoda.runtime.handler import Handler
from accoda.runtime.runners import wire
from accoda.runtime.runners.base import BaseRunner, ThreadLink, log, over_time
from accoda.runtime.runners.children import TICK, ChildProcess, locate
from accoda.runtime.runners.raised import unpack
from accoda.runtime.runners.threads import Threads

STARTS = 3
"""How many children in a row may die before they begin their work."""


class ProcessRunner(BaseRunner):
    """Runs handlers in child processes: one for each batch at a time, started when needed, and reused.

    `processes` limits how many there are; None: as many as batches run at once.
    """

    def __init__(self, handler: Handler[Any, Any, Any], processes: int | None = None) -> None:
        super().__init__(handler)
        self._target = locate(handler)
        self._threads = Threads(f"accoda-{handler.queue}-child")
        self._limit = None if processes is None else asyncio.Semaphore(processes)
        self._children: set[ChildProcess] = set()
        self._idle: deque[ChildProcess] = deque()
        self._handlings: dict[BatchRun, _Handling] = {}
        self._closed = False

    async def start(self) -> None:
        """Have one child that has imported the handler."""
        link = ThreadLink()
        self._threads.submit(partial(self._start_first, link))
        await link.over

    async def close(self) -> None:
        """Let the children end, and kill those that do not."""
        self._closed = True
        await super().close()
        for child in list(self._idle):
            child.dismiss()
        limit = time.monotonic() + self.grace
        while any(child.alive for child in self._children) and time.monotonic() < limit:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        for child in list(self._children):
            child.end()
        self._children.clear()
        self._idle.clear()
        self._threads.close()

    async def handle(self, batch: BatchRun) -> None:
        async with self._limit or contextlib.nullcontext():
            if batch.has_all_results():
                return
            handling = self._handlings[batch] = _Handling(batch)
            self._threads.submit(partial(self._drive, handling))
            try:
                await handling.over
            except asyncio.CancelledError:
                batch.fix(batch.ids(), WorkerStopped("the worker ended while the job ran"))
                handling.halted = True
                handling.kill()
                raise
            finally:
                del self._handlings[batch]
        batch.raise_error()

    def _halt(self, batch: BatchRun, ids: Collection[int]) -> None:
        # The thread that talks with the child looks at the results, and at this, several times a second.
        handling = self._handlings.get(batch)
        if handling is not None:
            handling.halted = batch.has_all_results()
            if handling.halted:  # should that thread itself be stuck in talking to it
                handling.loop.call_later(self.grace, handling.kill)

    # -- in the thread

    def _start_first(self, link: ThreadLink) -> None:
        error: BaseException | None = None
        try:
            # A new one, even if old ones are idle: they may have been started before the module was changed.
            child = self._new_child(lambda: not self._closed)
            self._idle.append(child)
            # Looked at after the entry: `close` either finds the child, or has set this before.
            if self._closed:
                self._end(child)
        except BaseException as failed:
            error = failed
        link.end(error)

    def _drive(self, handling: _Handling) -> None:
        """Have a batch run, by one child or, if that dies, by several."""
        error: BaseException | None = None
        failures, whole, batch = 0, self.handler.takes_batch, handling.batch
        try:
            while (jobs := handling.waiting()) and failures < STARTS:
                call = _Call(handling, self.handler, jobs if whole else jobs[:1])
                try:
                    self._make(call)
                    if whole:
                        break
                except ProcessDied as died:
                    if call.began:
                        call.blame(died)
                    else:  # no job's fault: what cannot start goes back, the rest too unless it goes on like that
                        failures = STARTS if isinstance(died, CannotStart) else failures + 1
                        if failures == STARTS:
                            batch.fix(batch.ids(), died)
        except BaseException as unexpected:
            log.exception("the conversation with a child process of %r failed", self.handler)
            error = unexpected
        handling.end(error)

    def _make(self, call: _Call) -> None:
        handling = call.handling
        child = handling.child = self._idle_child() or self._new_child(lambda: not handling.halted)
        try:
            if handling.waiting():  # it may have been stopped while the child started
                call.make(child)
        finally:
            handling.child = None
            if call.over and child.alive:
                self._idle.append(child)
            else:
                self._end(child)

    def _idle_child(self) -> ChildProcess | None:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._end(child)
        return None

    def _new_child(self, wanted: Callable[[], bool]) -> ChildProcess:
        """A child that is ready for work, or one that is no longer `wanted`."""
        try:
            child = ChildProcess(self._target)
            self._children.add(child)
            try:
                child.wait_until_ready(wanted)
            except BaseException:
                self._end(child)
                raise
        except CannotStart as error:
            self.problem = str(error)
            raise
        self.problem = ""
        return child

    def _end(self, child: ChildProcess) -> None:
        child.end()
        self._children.discard(child)


class _Handling(ThreadLink):
    """A batch on its way through child processes. `halted`: nothing of it is wanted any more."""

    def __init__(self, batch: BatchRun) -> None:
        super().__init__()
        self.batch = batch
        self.child: ChildProcess | None = None
        self.halted = False

    def waiting(self) -> list[Running[Any]]:
        results = self.batch.results
        return [] if self.halted else [job for job in self.batch.jobs if job.job.id not in results]

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()


class _Call:
    """One call of the handler by a child: with one job, or with a whole batch."""

    def __init__(self, handling: _Handling, handler: Handler[Any, Any, Any], jobs: list[Running[Any]]) -> None:
        self.handling = handling
        self.began = False
        self.over = False
        self._batch = handling.batch
        self._handler = handler
        self._jobs = jobs
        self._started = 0.0
        self._told = (False, 0)
        self._killed: BaseException | None = None

    def make(self, child: ChildProcess) -> None:
        """Give the child its work, and listen until it is done."""
        batch = self._batch
        child.send(wire.Work(batch.queue, [job.job for job in self._jobs], batch.deadline))
        while not self.over:
            message = child.receive(self._patience())
            if message is not None:
                self._receive(message)
            if self.began and not self.over and self._killed is None:
                self._look(child)

    def blame(self, died: ProcessDied) -> None:
        """The child is gone, and what it ran fails with it."""
        error = self._killed or died
        self._batch.fix([job.id for job in self._jobs], error)
        if self._handler.takes_batch:
            self._batch.error = self._batch.error or error

    def _patience(self) -> float:
        timeout = self._batch.timeout
        if timeout is None or not self.began:
            return TICK
        return max(0.0, min(TICK, self._started + timeout - time.monotonic()))

    def _receive(self, message: wire.ToWorker) -> None:
        batch = self._batch
        match message:
            case wire.Began():
                self.began = True
                self._started = time.monotonic()
            case wire.Said(id=id):
                batch.results[id] = wire.result_of(message)
            case wire.Follow(id=None, job=job):
                batch.loose.append(job)
            case wire.Follow(id=int(id), job=job):
                batch.follow_ups.setdefault(id, []).append(job)
            case wire.Reported(report=report):
                if batch.reporter is not None:
                    batch.reporter.pass_on(report)
            case wire.Over(raised=raised, stats=stats):
                self.over = True
                if raised is not None:
                    batch.error = batch.error or unpack(raised)
                elif self._handler.takes_batch:
                    batch.keep(stats)

    def _look(self, child: ChildProcess) -> None:
        """What happened on our side, while the child works?"""
        batch, now = self._batch, time.monotonic()
        told = (batch.stopping, len(batch.lost) + len(batch.fixed))
        if told != self._told:
            self._told = told
            child.tell(wire.News(batch.stopping, [*batch.lost, *list(batch.fixed)]))
        if batch.timeout is not None and now >= self._started + batch.timeout:
            self._kill(child, over_time(self._handler, batch.timeout))
        elif self.handling.halted or (not self._handler.takes_batch and self._jobs[0].id in batch.fixed):
            self._kill(child, WorkerStopped("the job was stopped"))

    def _kill(self, child: ChildProcess, error: BaseException) -> None:
        # Whatever it said before is received first; the end of its stream then comes as `ProcessDied`.
        self._killed = error
        child.kill()
