"""`def` handlers: in threads, a whole batch in one hop.

Single jobs run one after another in that thread, each in a context of its own. A job that is over its time is
interrupted. If that does not help, its thread is given up: the rest of the batch goes back to the queue, and the
processor starts nothing else before the thread has ended. So there are never more threads than processors, also where
every call hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from accoda.errors import WorkerStopped
from accoda.retry import PLAIN, Failed, Finished, Result, finished
from accoda.runtime.batch import BatchRun, Running, current
from accoda.runtime.handler import Handler
from accoda.runtime.runners.base import BaseRunner, ThreadLink, log, over_time
from accoda.runtime.runners.interrupt import Turn, came_back, claim, interrupt, shielded
from accoda.runtime.runners.threads import Threads

THREAD_HELD = "given back: the job before it was stopped but does not end, and holds their thread"


class _Handling(ThreadLink):
    """A batch on its way through a thread."""

    def __init__(self, batch: BatchRun, todo: Iterator[Any]) -> None:
        super().__init__()
        self.batch = batch
        self.todo = todo
        """What the handler is still to be called with: jobs, or the batch."""
        self.turn: Turn | None = None
        self.thread_ended: asyncio.Event | None = None
        """Set when the thread has ended after it was given up."""
        self.context = copy_context()  # what a middleware set in its context holds for the handler too
        self.timer: asyncio.TimerHandle | None = None

    def give_up(self) -> None:
        """On the loop: the thread does not end. The batch ends without it."""
        self.batch.held_by = self.thread_ended = asyncio.Event()
        self.batch.fix(self.batch.ids(), WorkerStopped(THREAD_HELD))
        self.end()

    def free(self) -> None:
        """From the thread that was given up: it ends. What follows on the loop comes after `give_up`, which decided it
        there, so it finds the event."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self.loop.call_soon_threadsafe(self._free)

    def _free(self) -> None:
        if self.thread_ended is not None:
            self.thread_ended.set()


class ThreadRunner(BaseRunner):
    """Runs `def` handlers."""

    def __init__(self, handler: Handler[Any, Any, Any]) -> None:
        super().__init__(handler)
        self._threads = Threads(f"accoda-{handler.queue}")
        self._handlings: dict[BatchRun, _Handling] = {}

    async def close(self) -> None:
        await super().close()
        self._threads.close()

    async def handle(self, batch: BatchRun) -> None:
        if batch.has_all_results():
            return
        todo: Iterator[Any] = iter((batch,) if self.handler.takes_batch else batch.passing())
        handling = self._handlings[batch] = _Handling(batch, todo)
        self._threads.submit(partial(self._work, handling))
        if batch.timeout is not None:
            handling.timer = handling.loop.call_later(batch.timeout, self._check, handling, batch.timeout)
        try:
            await handling.over
        except asyncio.CancelledError:
            batch.fix(batch.ids(), WorkerStopped("the worker ended while the job ran"))
            self._halt(batch, batch.ids())
            raise
        finally:
            del self._handlings[batch]
            if handling.timer is not None:
                handling.timer.cancel()
        batch.raise_error()

    # -- in the thread

    def _work(self, handling: _Handling) -> None:
        """Call the handler for a batch, or for its jobs one after another."""
        call = self._call_batch if self.handler.takes_batch else self._call_single
        batch, thread = handling.batch, threading.get_ident()
        for item in handling.todo:
            # The turn is shown first, and the result looked for after it, in the call. `stop` does it the other way
            # round. So one of the two always notices the other: no job runs on that is stopped just now.
            turn = Turn(item, thread)
            result = shielded(turn, call, handling)
            if result is None:
                if not came_back(turn):
                    handling.free()
                    return
            elif item is batch:
                batch.returned = isinstance(result, Finished)
                batch.error = batch.error or getattr(result, "error", None)
            else:
                batch.results.setdefault(item.job.id, result)
        handling.end()

    def _call_single(self, handling: _Handling, job: Running[Any]) -> Result:
        done = handling.batch.results.get(job.job.id)
        if done is not None:  # stopped before it began, or a middleware has said what becomes of it
            return done
        try:
            return finished(handling.context.copy().run(self._call_as, job))
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: they must not end the worker
            return Failed(error)

    def _call_as(self, job: Running[Any]) -> object:
        current.set(job)
        return self._invoke(job.payload)

    def _call_batch(self, handling: _Handling, batch: BatchRun) -> Result:
        if batch.has_all_results():
            return PLAIN
        try:
            handling.context.run(self._invoke, batch)
        except BaseException as error:
            return Failed(error)
        return PLAIN

    # -- on the loop

    def _check(self, handling: _Handling, timeout: float) -> None:
        """Stop the call that is over its time, and come again when the next one can be."""
        batch, turn, left = handling.batch, handling.turn, timeout
        if turn is not None and turn.token:
            left = turn.started + timeout - time.monotonic()
            if left <= 0:
                late = batch.ids() if turn.item is batch else [turn.item.job.id]
                batch.owner.runner.stop(batch, late, over_time(self.handler, timeout))
                left = timeout  # whatever is called next has not begun yet
        handling.timer = handling.loop.call_later(left, self._check, handling, timeout)

    def _halt(self, batch: BatchRun, ids: Collection[int]) -> None:
        handling = self._handlings.get(batch)
        turn = None if handling is None else handling.turn
        if handling is not None and turn is not None and (turn.item is batch or turn.item.job.id in ids):
            stay = interrupt(turn)
            if stay is not None:
                handling.loop.call_later(self.grace, self._give_up_thread, handling, turn, stay)

    def _give_up_thread(self, handling: _Handling, turn: Turn, stay: list[bool]) -> None:
        if not claim(stay):
            return  # it came back
        log.warning("%r of %r was stopped but does not end; its thread is given up", turn.item, self.handler)
        handling.give_up()
