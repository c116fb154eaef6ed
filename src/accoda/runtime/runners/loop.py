"""`async def` handlers: on the worker's own event loop.

All jobs of a take run at the same time. A handler of batches is one task. Single jobs have a task, and so a context, of
their own each, unless they would not notice the difference: a handler that never waits runs from its first line to its
last in one step, and a task costs ten times as much as the call. So one task, the *driver*, goes from job to job:

    driver: job 1 ─► job 2 ─► job 3 (waits for something) ┄┄┄► job 3 ends, and so does this driver
                                └► the next driver: job 4 ─► job 5 ─► …

A driver goes on to the next job only if the last one left it as it found it: the job never waited, set no context
variable, and did not ask for the task to be cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from contextvars import copy_context
from typing import Any

from accoda.errors import WorkerStopped
from accoda.retry import PLAIN, Failed, finished
from accoda.runtime.batch import BatchRun, Running, current
from accoda.runtime.runners.base import BaseRunner, over_time

_BATCH = -1  # the key of the only task of a handler that takes batches; no job has this id
_FEW = 4
"""A driver that came to fewer jobs than this is not worth another one: the rest of its batch get a task each."""


class LoopRunner(BaseRunner):
    """Runs `async def` handlers."""

    async def handle(self, batch: BatchRun) -> None:
        timer = None
        if batch.timeout is not None:
            # All jobs of the batch start now, so one timer does for all of them.
            timer = asyncio.get_running_loop().call_later(batch.timeout, self._time_out, batch)
        try:
            await self._launch(batch)
            if batch.calls:
                batch.tell()
                batch.over = asyncio.get_running_loop().create_future()
                await batch.over
        except asyncio.CancelledError:
            batch.fix(batch.ids(), WorkerStopped("the worker ended while the job ran"))
            await self._cancel(batch)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        batch.raise_error()

    def _time_out(self, batch: BatchRun) -> None:
        batch.owner.runner.stop(batch, batch.ids(), over_time(self.handler, batch.timeout))

    async def _launch(self, batch: BatchRun) -> None:
        """Start the handler for every job that has no result; come back when all have started."""
        if self.handler.takes_batch:
            if not batch.has_all_results():
                await self._first_step(batch, self._call_batch(batch))
            return
        results = batch.results
        batch.todo, batch.all_begun, came_to = batch.passing(), False, _FEW
        while came_to >= _FEW and not batch.all_begun:
            before = len(results)
            await self._first_step(batch, self._drive(batch))
            came_to = len(results) - before
        create_task = asyncio.get_running_loop().create_task
        for job in batch.todo:
            if job.job.id not in results:
                batch.calls[job.job.id] = create_task(self._call(batch, job))

    async def _first_step(self, batch: BatchRun, call: Coroutine[Any, Any, None]) -> None:
        """Let a new task run until it ends or waits for something."""
        batch.driving = None
        batch.driver = asyncio.get_running_loop().create_task(call)
        if batch.driving is None:  # it has begun already where the loop starts tasks eagerly
            # What is ready goes in the order in which it became so: first the task, and then we. Whatever it waits
            # for, it comes back after us, so nothing is run by a task that is not enrolled but should be.
            await asyncio.sleep(0)
        _enrol(batch)

    async def _drive(self, batch: BatchRun) -> None:
        """Go from job to job for as long as no job leaves a trace in this task."""
        cancelling = asyncio.current_task().cancelling  # type: ignore[union-attr]
        results, calls, invoke = batch.results, batch.calls, self._invoke
        for job in batch.todo:
            id = job.job.id
            if id in results:  # a middleware may have said what becomes of it
                continue
            batch.driving = id
            current.set(job)
            before, closing = copy_context(), False
            try:
                value = await invoke(job.payload)
                if id not in results:
                    results[id] = PLAIN if value is None else finished(value)
            except BaseException as error:
                results.setdefault(id, Failed(error))  # see `_call`
                # Python throws a GeneratorExit into a task that is destroyed with its loop; a handler may raise one of
                # its own. They look the same, and a task that is being destroyed must run no other job.
                closing = isinstance(error, GeneratorExit)
            if closing or id in calls:  # it waited, and others go on with what is left to do
                _left(batch, id)
                return
            try:
                if cancelling() or copy_context() != before:
                    return
            except Exception:  # the values in a context are the user's, and so is the way they compare
                return
        batch.all_begun = True

    async def _call(self, batch: BatchRun, job: Running[Any]) -> None:
        current.set(job)
        id, results = job.job.id, batch.results
        try:
            value = await self._invoke(job.payload)
            if id not in results:
                results[id] = PLAIN if value is None else finished(value)
        except BaseException as error:
            # Ours or the handler's own CancelledError: `stop` has fixed the result before it cancelled, so only the
            # handler's own gets in here. SystemExit and KeyboardInterrupt must not end the worker.
            results.setdefault(id, Failed(error))
        finally:
            _left(batch, id)

    async def _call_batch(self, batch: BatchRun) -> None:
        batch.driving = _BATCH
        try:
            batch.keep(await self._invoke(batch))
        except BaseException as error:
            batch.error = batch.error or error
        finally:
            _left(batch, _BATCH)

    def _halt(self, batch: BatchRun, ids: Collection[int]) -> None:
        # Between a driver's first step and its enrolment others may run, and stop what it waits in.
        _enrol(batch)
        keys = [_BATCH] if self.handler.takes_batch else ids
        halted = [key for key in keys if key in batch.calls]
        for key in halted:
            task = batch.calls[key]
            task.cancel()
            # A task that was cancelled before its first step never comes to its `finally`.
            task.add_done_callback(lambda _, key=key: _left(batch, key))
        if halted:
            asyncio.get_running_loop().call_later(self.grace, self._abandon, batch, halted)

    def _abandon(self, batch: BatchRun, keys: Collection[int]) -> None:
        for key in keys:
            task = batch.calls.get(key)
            if task is not None:
                self.leave_behind(task, f"{self.handler!r}" if key == _BATCH else f"job {key} of {self.handler!r}")
                _left(batch, key)

    async def _cancel(self, batch: BatchRun) -> None:
        """Our caller was cancelled: so are its tasks, and it ends after them."""
        _enrol(batch)
        tasks = tuple(batch.calls.values())
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self.grace)
            for task in left:
                self.leave_behind(task, f"{self.handler!r}")


def _enrol(batch: BatchRun) -> None:
    """The driver, if it has not ended, waits for something: from now on it has no job but this one."""
    driver, batch.driver = batch.driver, None
    if driver is not None and batch.driving is not None and not driver.done():
        batch.calls[batch.driving] = driver


def _left(batch: BatchRun, key: int) -> None:
    """A task ended. A second time does no harm."""
    batch.calls.pop(key, None)
    if batch.calls:
        batch.tell()
    elif batch.over is not None and not batch.over.done():
        batch.over.set_result(None)
