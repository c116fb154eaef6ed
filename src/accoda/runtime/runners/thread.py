"""`def` handlers: in threads, one for each job at a time.

The jobs of a take go to one thread first, which is quickest for those that are over in no time. What it has not begun
after a millisecond is given to threads of its own, so no job waits for another one:

    take ──► thread 1: job 1 ─► job 2 ─► job 3 (takes longer) ┄┄┄► …
                       a millisecond later, thread 2: job 4, thread 3: job 5, …

A job that is over its time is interrupted. If that does not help, its thread is given up, and holds its slot until it
ends: there are never more threads than slots, also where every call hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from accoda.errors import WorkerStopped
from accoda.retry import PLAIN, Failed, Result, finished
from accoda.runtime.batch import BatchRun, Running, current
from accoda.runtime.handler import Handler
from accoda.runtime.runners.base import BaseRunner, log, over_time
from accoda.runtime.runners.caller import caller_thread
from accoda.runtime.runners.interrupt import Turn, came_back, claim, interrupt, shielded
from accoda.runtime.runners.threads import Threads

BATCH = -1  # the key of the only call of a handler that takes batches; no job has this id
HELP_AFTER = 0.001
"""Seconds that the first thread has the jobs of a take for itself."""


class _Handling:
    """Jobs on their way through threads."""

    def __init__(self, batch: BatchRun, whole: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()
        self.batch = batch
        self.whole = whole
        self.todo: deque[Any] = deque((batch,) if whole else batch.passing())
        """What the handler is still to be called with: jobs, or the batch."""
        self.context = copy_context()  # what a middleware set in its context holds for the handler too
        self.caller = caller_thread.get()
        self.threads_ended: dict[Turn, asyncio.Future[None]] = {}
        """Done when a thread that was given up has ended, by what it was at."""
        self._telling = False

    def show(self, turn: Turn) -> None:
        """From a thread: this call is under way."""
        self.batch.calls[_key(turn.item)] = turn

    def told(self) -> None:
        """From a thread: a call is over. One wake-up of the loop serves all that end before it comes to look."""
        if not self._telling:
            self._telling = True
            self.call(self._tell)

    def call(self, function: Any, *args: Any) -> None:
        """From a thread: call this on the loop."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self.loop.call_soon_threadsafe(function, *args)

    def _tell(self) -> None:
        self._telling = False  # before the look: what ends from now on tells anew
        self.look()

    def look(self) -> None:
        """On the loop: tell what has ended."""
        batch = self.batch
        # An item that a thread has just taken is neither to do nor shown yet, but has no result either.
        over = not batch.calls and not self.todo and (self.whole or batch.has_all_results())
        if over and not self.over.done():
            self.over.set_result(None)
        elif not over:
            batch.tell()

    def free(self, turn: Turn) -> None:
        """On the loop: the thread that was given up has ended. `_give_up` was here before, and left the future."""
        self.threads_ended.pop(turn).set_result(None)


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
        handling = self._handlings[batch] = _Handling(batch, self.handler.takes_batch)
        timers = [handling.loop.call_later(HELP_AFTER, self._help, handling)]
        self._submit(handling)
        if batch.timeout is not None:
            timers.append(handling.loop.call_later(batch.timeout, self._check, handling, timers))
        try:
            await handling.over
        except asyncio.CancelledError:
            batch.fix(batch.ids(), WorkerStopped("the worker ended while the job ran"))
            self._halt(batch, batch.ids())
            raise
        finally:
            del self._handlings[batch]
            for timer in timers:
                timer.cancel()
        batch.raise_error()

    def _help(self, handling: _Handling) -> None:
        """What the first thread has not begun yet gets threads of its own."""
        for _ in range(len(handling.todo)):
            self._submit(handling)

    def _submit(self, handling: _Handling) -> None:
        (handling.caller or self._threads).submit(partial(self._work, handling))

    # -- in the thread

    def _work(self, handling: _Handling) -> None:
        """Call the handler for one item after the other, until none is left to begin."""
        call = partial(self._call_batch if self.handler.takes_batch else self._call_single, handling)
        batch, thread = handling.batch, threading.get_ident()
        while True:
            try:
                item = handling.todo.popleft()  # one atomic step: each item has one thread
            except IndexError:
                return
            # The turn is shown first, and the result looked for after it, in the call. `stop` does it the other way
            # round. So one of the two always notices the other: no job runs on that is stopped just now.
            turn = Turn(item, thread)
            result = shielded(turn, handling.show, call)
            if result is None:
                if not came_back(turn):
                    handling.call(handling.free, turn)
                    return
            elif item is batch:
                batch.error = batch.error or getattr(result, "error", None)
            else:
                batch.results.setdefault(item.job.id, result)
            batch.calls.pop(_key(item), None)
            handling.told()

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
            batch.keep(handling.context.run(self._invoke, batch))
        except BaseException as error:
            return Failed(error)
        return PLAIN

    # -- on the loop

    def _check(self, handling: _Handling, timers: list[asyncio.TimerHandle]) -> None:
        """Stop the calls that are over their time, and come again when the next one can be."""
        batch, timeout, now = handling.batch, handling.batch.timeout, time.monotonic()
        assert timeout is not None
        left = timeout
        for turn in list(batch.calls.values()):
            if turn.token:
                over = turn.started + timeout - now
                if over <= 0:
                    late = batch.ids() if turn.item is batch else [turn.item.job.id]
                    batch.owner.runner.stop(batch, late, over_time(self.handler, timeout))
                else:
                    left = min(left, over)
        timers[-1] = handling.loop.call_later(left, self._check, handling, timers)

    def _halt(self, batch: BatchRun, ids: Collection[int]) -> None:
        handling = self._handlings.get(batch)
        if handling is None:
            return
        for key in [BATCH] if self.handler.takes_batch else ids:
            turn = batch.calls.get(key)
            stay = None if turn is None else interrupt(turn)
            if turn is not None and stay is not None:
                handling.loop.call_later(self.grace, self._give_up, handling, turn, stay)

    def _give_up(self, handling: _Handling, turn: Turn, stay: list[bool]) -> None:
        """The thread does not end: its job, or its batch, ends without it."""
        if not claim(stay):
            return  # it came back
        log.warning("%r of %r was stopped but does not end; its thread is given up", turn.item, self.handler)
        ended = handling.threads_ended[turn] = handling.loop.create_future()
        handling.batch.hold(ended)
        handling.batch.calls.pop(_key(turn.item), None)
        handling.look()


def _key(item: Any) -> int:
    return BATCH if isinstance(item, BatchRun) else item.job.id
