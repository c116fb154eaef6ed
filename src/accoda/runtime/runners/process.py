"""Handlers in processes of their own: for work that keeps a processor busy, or may crash.

A batch goes to one child, and a thread of the worker talks with it: large payloads do not block the loop. Jobs run
there one after another. Each result comes back at once, so that a child which dies takes only the job with it that it
ran; the rest go on in a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from accoda.errors import CannotStart, ProcessDied, WorkerStopped
from accoda.runtime.batch import Batch
from accoda.runtime.handler import Handler
from accoda.runtime.middleware import Middleware
from accoda.runtime.runners.base import BaseRunner, log
from accoda.runtime.runners.children import ChildProcess, locate
from accoda.runtime.runners.talk import ProcessRun, Talk
from accoda.runtime.runners.threads import Threads

STARTS = 3
"""How many children in a row may die before they begin their work."""


class ProcessRunner(BaseRunner[ProcessRun]):
    """Runs handlers in child processes: one for each batch at a time, started when needed, and reused.

    `processes` limits how many there are; None: as many as batches run at once.
    """

    def __init__(
        self,
        handler: Handler[Any, Any, Any],
        middleware: Sequence[Middleware] = (),
        processes: int | None = None,
    ) -> None:
        super().__init__(handler, middleware)
        self._target = locate(handler)
        self._threads = Threads(f"accoda-{handler.queue}-child")
        self._limit = None if processes is None else asyncio.Semaphore(processes)
        self._children: set[ChildProcess] = set()
        self._idle: deque[ChildProcess] = deque()

    async def close(self) -> None:
        """Let the children end, and kill those that do not."""
        await super().close()
        for child in self._idle:
            child.dismiss()
        limit = time.monotonic() + self.grace
        while any(child.alive for child in self._children) and time.monotonic() < limit:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        for child in list(self._children):
            child.end()
        self._children.clear()
        self._idle.clear()
        self._threads.close()

    def _make_run(self, batch: Batch[Any], timeout: float | None) -> ProcessRun:
        return ProcessRun(batch, timeout)

    async def _handle(self, run: ProcessRun) -> None:
        async with self._limit or contextlib.nullcontext():
            if run.has_all_results():
                return
            self._threads.submit(partial(self._drive, run))
            try:
                await run.over
            except asyncio.CancelledError:
                run.fix(run.ids(), WorkerStopped("the worker ended while the job ran"))
                run.halted = True
                self._kill(run)
                raise
        run.raise_error()

    def _halt(self, run: ProcessRun, ids: Collection[int]) -> None:
        # The thread that talks with the child looks at the results, and at this, several times a second.
        run.halted = run.has_all_results()
        if run.halted:
            run.loop.call_later(self.grace, self._kill, run)  # should that thread itself be stuck in talking to it

    @staticmethod
    def _kill(run: ProcessRun) -> None:
        if run.child is not None:
            run.child.kill()

    # -- in the thread

    def _drive(self, run: ProcessRun) -> None:
        """Have a batch run, by one child or, if that dies, by several."""
        error: BaseException | None = None
        failures = 0
        try:
            while (jobs := run.waiting()) and failures < STARTS:
                talk = Talk(run, self._handler, jobs)
                try:
                    self._have(talk)
                    if talk.over:
                        break
                except ProcessDied as died:
                    if talk.began:
                        talk.blame(died)
                    else:  # no job's fault, unless it goes on like that
                        failures = STARTS if isinstance(died, CannotStart) else failures + 1
                        if failures == STARTS:
                            run.fix(run.ids(), died)
        except BaseException as unexpected:
            log.exception("the conversation with a child process of %r failed", self._handler)
            error = unexpected
        run.end(error)

    def _have(self, talk: Talk) -> None:
        run = talk.run
        child = run.child = self._hire(run)
        try:
            if run.waiting():  # it may have been stopped while the child started
                talk.have(child)
        finally:
            run.child = None
            if talk.over and child.alive:
                self._idle.append(child)
            else:
                self._end(child)

    def _hire(self, run: ProcessRun) -> ChildProcess:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._end(child)
        child = ChildProcess(self._target)
        self._children.add(child)
        try:
            child.wait_until_ready(lambda: not run.halted)
        except BaseException:
            self._end(child)
            raise
        return child

    def _end(self, child: ChildProcess) -> None:
        child.end()
        self._children.discard(child)
