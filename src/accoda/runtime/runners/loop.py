"""`async def` handlers: on the worker's own event loop.

A handler of single jobs gets a task, and so a context, for each job; all jobs of a batch run concurrently. A handler of
batches is one task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from accoda.errors import WorkerStopped
from accoda.retry import PLAIN, Failed, finished
from accoda.runtime.batch import Batch, Running, current
from accoda.runtime.runners.base import BaseRunner, Run, pass_on

_BATCH = -1  # the key of the only task of a handler that takes batches; no job has this id


class LoopRun(Run):
    """A batch whose handler runs in tasks. `over` is set when the last of them ended or was given up."""

    __slots__ = ("over", "tasks")

    def __init__(self, batch: Batch[Any], timeout: float | None) -> None:
        super().__init__(batch, timeout)
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def left(self, key: int) -> None:
        """A task ended. A second time does no harm."""
        self.tasks.pop(key, None)
        if not self.tasks and not self.over.done():
            self.over.set_result(None)


class LoopRunner(BaseRunner[LoopRun]):
    """Runs `async def` handlers."""

    def _make_run(self, batch: Batch[Any], timeout: float | None) -> LoopRun:
        return LoopRun(batch, timeout)

    async def _handle(self, run: LoopRun) -> None:
        self._launch(run)
        if not run.tasks:
            return
        loop = asyncio.get_running_loop()
        # All jobs of the batch start now, so one timer does for all of them.
        timer = None if run.timeout is None else loop.call_later(run.timeout, self._time_out, run, run.ids())
        try:
            await run.over
        except asyncio.CancelledError:
            run.fix(run.ids(), WorkerStopped("the worker ended while the job ran"))
            await self._cancel(run)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        run.raise_error()

    def _launch(self, run: LoopRun) -> None:
        create_task = asyncio.get_running_loop().create_task
        if self._handler.takes_batch:
            if not run.has_all_results():
                run.tasks[_BATCH] = create_task(self._call_batch(run))
            return
        for job in run.batch.jobs:
            if job.job.id not in run.batch.results:  # a middleware may have said what becomes of it
                run.tasks[job.job.id] = create_task(self._call(run, job))

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
        tasks = tuple(run.tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self.grace)
            for task in left:
                self._stray(task, f"{self._handler!r}")
