"""`async def` handlers: on the worker's own event loop.

All jobs of a batch run concurrently. A handler of batches is one task. Single jobs have a task, and so a context, of
their own each, unless they would not notice the difference: a handler that never waits runs from its first line to its
last in one step, and a task costs ten times as much as the call. So one task, the *driver*, goes from job to job:

    driver: job 1 ─► job 2 ─► job 3 (waits for something) ┄┄┄► job 3 ends, and so does this driver
                                └► the next driver: job 4 ─► job 5 ─► …

A driver goes on to the next job only if the last one left it as it found it: the job never waited, set no context
variable, and did not ask for the task to be cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator
from contextvars import copy_context
from typing import Any

from accoda.errors import WorkerStopped
from accoda.retry import PLAIN, Failed, finished
from accoda.runtime.batch import Batch, Running, current
from accoda.runtime.runners.base import BaseRunner, Run, pass_on

_BATCH = -1  # the key of the only task of a handler that takes batches; no job has this id
_FEW = 4
"""A driver that came to fewer jobs than this is not worth another one: the rest of its batch get a task each."""


class LoopRun(Run):
    """A batch whose handler runs in tasks. `tasks` are those that wait for something; `over` ends with the last."""

    __slots__ = ("at_end", "driver", "key", "line", "over", "tasks")

    def __init__(self, batch: Batch[Any], timeout: float | None) -> None:
        super().__init__(batch, timeout)
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.over: asyncio.Future[None] | None = None
        """None while nobody waits for the tasks: more of them may be made yet."""
        self.line: Iterator[Running[Any]] = iter(())
        """The jobs that no task has come to."""
        self.at_end = False
        """Whether a driver came to the end of the line."""
        self.driver: asyncio.Task[None] | None = None
        self.key: int | None = None
        """What the driver is at: the id of a job, or the whole batch; None: it has not begun."""

    def enrol(self) -> None:
        """The driver, if it has not ended, waits for something: from now on it has no job but this one."""
        driver, self.driver = self.driver, None
        if driver is not None and self.key is not None and not driver.done():
            self.tasks[self.key] = driver

    def left(self, key: int) -> None:
        """A task ended. A second time does no harm."""
        self.tasks.pop(key, None)
        if not self.tasks and self.over is not None and not self.over.done():
            self.over.set_result(None)


class LoopRunner(BaseRunner[LoopRun]):
    """Runs `async def` handlers."""

    def _make_run(self, batch: Batch[Any], timeout: float | None) -> LoopRun:
        return LoopRun(batch, timeout)

    async def _handle(self, run: LoopRun) -> None:
        timer = None
        if run.timeout is not None:
            # All jobs of the batch start now, so one timer does for all of them.
            timer = asyncio.get_running_loop().call_later(run.timeout, self._time_out, run, run.ids())
        try:
            await self._launch(run)
            if run.tasks:
                run.over = asyncio.get_running_loop().create_future()
                await run.over
        except asyncio.CancelledError:
            run.fix(run.ids(), WorkerStopped("the worker ended while the job ran"))
            await self._cancel(run)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        run.raise_error()

    async def _launch(self, run: LoopRun) -> None:
        """Start the handler for every job that has no result; come back when all have started."""
        if self._handler.takes_batch:
            if not run.has_all_results():
                await self._first_step(run, self._call_batch(run))
            return
        results = run.batch.results
        run.line, came_to = run.batch.passing(), _FEW
        while came_to >= _FEW and not run.at_end:
            before = len(results)
            await self._first_step(run, self._drive(run))
            came_to = len(results) - before
        create_task = asyncio.get_running_loop().create_task
        for job in run.line:
            if job.job.id not in results:
                run.tasks[job.job.id] = create_task(self._call(run, job))

    async def _first_step(self, run: LoopRun, call: Coroutine[Any, Any, None]) -> None:
        """Let a new task run until it ends or waits for something."""
        run.key = None
        run.driver = asyncio.get_running_loop().create_task(call)
        if run.key is None:  # it has begun already where the loop starts tasks eagerly
            # What is ready goes in the order in which it became so: first the task, and then we. Whatever it waits
            # for, it comes back after us, so nothing is run by a task that is not enrolled but should be.
            await asyncio.sleep(0)
        run.enrol()

    async def _drive(self, run: LoopRun) -> None:
        """Go from job to job for as long as no job leaves a trace in this task."""
        cancelling = asyncio.current_task().cancelling  # type: ignore[union-attr]
        results, tasks, invoke = run.batch.results, run.tasks, self._invoke
        for job in run.line:
            id = job.job.id
            if id in results:  # a middleware may have said what becomes of it
                continue
            run.key = id
            current.set(job)
            before = copy_context()
            try:
                value = await invoke(job.payload)
                if id not in results:
                    results[id] = PLAIN if value is None else finished(value)
            except (KeyboardInterrupt, GeneratorExit):
                pass_on()
                run.left(id)
                raise
            except BaseException as error:
                results.setdefault(id, Failed(error))  # see `_call`
            if id in tasks:  # it waited, and others go on with the line
                run.left(id)
                return
            try:
                if cancelling() or copy_context() != before:
                    return
            except Exception:  # the values in a context are the user's, and so is the way they compare
                return
        run.at_end = True

    async def _call(self, run: LoopRun, job: Running[Any]) -> None:
        current.set(job)
        id, results = job.job.id, run.batch.results
        try:
            value = await self._invoke(job.payload)
            if id not in results:
                results[id] = PLAIN if value is None else finished(value)
        except (KeyboardInterrupt, GeneratorExit):
            pass_on()
            raise
        except BaseException as error:
            # Ours or the handler's own CancelledError: `stop` has fixed the result before it cancelled, so only the
            # handler's own gets in here. SystemExit must not end the worker.
            results.setdefault(id, Failed(error))
        finally:
            run.left(id)

    async def _call_batch(self, run: LoopRun) -> None:
        run.key = _BATCH
        try:
            await self._invoke(run.batch)
        except (KeyboardInterrupt, GeneratorExit):
            pass_on()
            raise
        except BaseException as error:
            run.error = run.error or error
        finally:
            run.left(_BATCH)

    def _halt(self, run: LoopRun, ids: Collection[int]) -> None:
        # Between a driver's first step and its `enrol` others may run, and stop what it waits in.
        run.enrol()
        keys = [_BATCH] if self._handler.takes_batch else ids
        halted = [key for key in keys if key in run.tasks]
        for key in halted:
            task = run.tasks[key]
            task.cancel()
            # A task that was cancelled before its first step never comes to its `finally`.
            task.add_done_callback(lambda _, key=key: run.left(key))  # type: ignore[misc]
        if halted:
            asyncio.get_running_loop().call_later(self.grace, self._abandon, run, halted)

    def _abandon(self, run: LoopRun, keys: Collection[int]) -> None:
        for key in keys:
            task = run.tasks.get(key)
            if task is not None:
                self._stray(task, f"{self._handler!r}" if key == _BATCH else f"job {key} of {self._handler!r}")
                run.left(key)

    async def _cancel(self, run: LoopRun) -> None:
        """Our caller was cancelled: so are its tasks, and it ends after them."""
        run.enrol()
        tasks = tuple(run.tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self.grace)
            for task in left:
                self._stray(task, f"{self._handler!r}")
