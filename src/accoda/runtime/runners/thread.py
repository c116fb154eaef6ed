"""`def` handlers: in threads, a whole batch in one hop.

Single jobs run one after another in that thread, each in a context of its own. A job that is over its time is
interrupted; if that does not help, its thread is given up and the rest of the batch goes on in another one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

from accoda.errors import WorkerStopped
from accoda.retry import PLAIN, Failed, Result, finished
from accoda.runtime.batch import Batch, Running, current
from accoda.runtime.handler import Handler
from accoda.runtime.middleware import Middleware
from accoda.runtime.runners.base import BaseRunner, HopRun, log
from accoda.runtime.runners.interrupt import Turn, came_back, claim, interrupt, shielded
from accoda.runtime.runners.threads import Threads


class ThreadRun(HopRun):
    """A batch whose handler runs in a thread."""

    __slots__ = ("context", "timer", "todo", "turn")

    def __init__(self, batch: Batch[Any], timeout: float | None) -> None:
        super().__init__(batch, timeout)
        self.todo: Iterator[Any] = iter(())
        """What the handler is still to be called with: jobs, or the batch. One thread at a time draws from it."""
        self.turn: Turn | None = None
        self.context = copy_context()
        self.timer: asyncio.TimerHandle | None = None


class ThreadRunner(BaseRunner[ThreadRun]):
    """Runs `def` handlers."""

    def __init__(self, handler: Handler[Any, Any, Any], middleware: Sequence[Middleware] = ()) -> None:
        super().__init__(handler, middleware)
        self._threads = Threads(f"accoda-{handler.queue}")

    async def close(self) -> None:
        await super().close()
        self._threads.close()

    def _make_run(self, batch: Batch[Any], timeout: float | None) -> ThreadRun:
        return ThreadRun(batch, timeout)

    async def _handle(self, run: ThreadRun) -> None:
        if run.has_all_results():
            return
        run.context = copy_context()  # what a middleware set in its context holds for the handler too
        run.todo = iter((run.batch,) if self._handler.takes_batch else run.batch.passing())
        self._threads.submit(partial(self._work, run))
        if run.timeout is not None:
            run.timer = run.loop.call_later(run.timeout, self._check, run, run.timeout)
        try:
            await run.over
        except asyncio.CancelledError:
            run.fix(run.ids(), WorkerStopped("the worker ended while the job ran"))
            self._halt(run, run.ids())
            raise
        finally:
            if run.timer is not None:
                run.timer.cancel()
        run.raise_error()

    # -- in the thread

    def _work(self, run: ThreadRun) -> None:
        """Call the handler for what is left of a batch. Another thread goes on with it if this one is given up."""
        call = self._call_batch if self._handler.takes_batch else self._call_single
        thread = threading.get_ident()
        for item in run.todo:
            # The turn is shown first, as `run.turn`, and the result looked for after it, in the call. `stop` does it
            # the other way round. So one of the two always notices the other: no job runs on that is stopped just now.
            turn = Turn(item, thread)
            result = shielded(turn, call, run)
            if result is None:
                if not came_back(turn):
                    return
            elif isinstance(result, Failed) and isinstance(result.error, KeyboardInterrupt):
                run.end(result.error)
                return
            elif item is run.batch:
                run.error = run.error or getattr(result, "error", None)
            else:
                run.batch.results.setdefault(item.job.id, result)
        run.end()

    def _call_single(self, run: ThreadRun, job: Running[Any]) -> Result:
        done = run.batch.results.get(job.job.id)
        if done is not None:  # stopped before it began, or a middleware has said what becomes of it
            return done
        try:
            return finished(run.context.copy().run(self._call_as, job))
        except BaseException as error:  # SystemExit too: it must not end the worker
            return Failed(error)

    def _call_as(self, job: Running[Any]) -> object:
        current.set(job)
        return self._invoke(job.payload)

    def _call_batch(self, run: ThreadRun, batch: Batch[Any]) -> Result:
        if run.has_all_results():
            return PLAIN
        try:
            run.context.run(self._invoke, batch)
        except BaseException as error:
            return Failed(error)
        return PLAIN

    # -- on the loop

    def _check(self, run: ThreadRun, timeout: float) -> None:
        """Stop the call that is over its time, and come again when the next one can be."""
        turn, left = run.turn, timeout
        if turn is not None and turn.token:
            left = turn.started + timeout - time.monotonic()
            if left <= 0:
                self._time_out(run, run.ids() if turn.item is run.batch else [turn.item.job.id])
                left = timeout  # whatever is called next has not begun yet
        run.timer = run.loop.call_later(left, self._check, run, timeout)

    def _halt(self, run: ThreadRun, ids: Collection[int]) -> None:
        turn = run.turn
        if turn is not None and (turn.item is run.batch or turn.item.job.id in ids):
            stay = interrupt(turn)
            if stay is not None:
                run.loop.call_later(self.grace, self._give_up_thread, run, turn, stay)

    def _give_up_thread(self, run: ThreadRun, turn: Turn, stay: list[bool]) -> None:
        if not claim(stay):
            return  # it came back
        log.warning("%r of %r was stopped but does not end; its thread is given up", turn.item, self._handler)
        if not run.over.done():
            self._threads.submit(partial(self._work, run))  # the rest of the batch; also if there is none
