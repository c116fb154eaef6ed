"""Middleware around a runner."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, cast

from accoda.errors import InvalidInput
from accoda.runtime.batch import Batch, BatchRun
from accoda.runtime.middleware import Middleware, wrap
from accoda.runtime.runners.base import BaseRunner


class LayeredRunner:
    """Runs batches through middleware, the handler innermost. The middleware of a batch is one task."""

    def __init__(self, inner: BaseRunner, middleware: Sequence[Middleware]) -> None:
        self._inner = inner
        self._call = wrap(self._handle_inside, middleware)
        self._chains: dict[BatchRun, _Chain] = {}

    @property
    def problem(self) -> str:
        return self._inner.problem

    async def start(self) -> None:
        await self._inner.start()

    async def handle(self, batch: BatchRun) -> None:
        chain = self._chains[batch] = _Chain(self._run_chain(batch))
        try:
            await asyncio.wait((chain.task, chain.given_up), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            chain.task.cancel()
            await asyncio.wait((chain.task,), timeout=2 * self._inner.grace)  # the handler inside has its own grace
            raise
        finally:
            del self._chains[batch]
        if not chain.task.done():
            self._inner.leave_behind(chain.task, f"middleware of {self._inner.handler!r}")

    def stop(self, batch: BatchRun, ids: Collection[int], error: BaseException) -> bool:
        whole = self._inner.stop(batch, ids, error)
        if whole and (chain := self._chains.get(batch)) is not None:
            chain.hurry(self._inner.grace)
        return whole

    async def close(self) -> None:
        await self._inner.close()

    async def _run_chain(self, batch: BatchRun) -> None:
        try:
            await self._call(batch)
            # A middleware may swallow what a batch handler raised; then it is as if the handler had returned.
            chain = self._chains.get(batch)
            batch.returned = self._inner.handler.takes_batch and chain is not None and chain.begun
        except BaseException as error:
            # Nothing may leave this task: SystemExit would end the loop, CancelledError look like our caller's.
            batch.error = error

    async def _handle_inside(self, batch: Batch[Any]) -> None:
        """The innermost `run` that a middleware calls."""
        chain = self._chains.get(cast(BatchRun, batch))
        if chain is None:
            raise InvalidInput("batch", "is not being run; a middleware passes on the batch that it was given")
        chain.begun = True
        await self._inner.handle(cast(BatchRun, batch))


class _Chain:
    """The task of a batch's middleware. `begun`: it has come to the handler."""

    def __init__(self, call: Any) -> None:
        loop = asyncio.get_running_loop()
        self.begun = False
        self.given_up: asyncio.Future[None] = loop.create_future()
        self.task: asyncio.Task[None] = loop.create_task(call)

    def hurry(self, grace: float) -> None:
        """No job is left to run: the middleware may end what it does, but not hold the batch for ever."""
        loop = asyncio.get_running_loop()
        if not self.begun:
            self.task.cancel()
        loop.call_later(2 * grace, self.task.cancel)
        loop.call_later(3 * grace, self._give_up)

    def _give_up(self) -> None:
        if not self.given_up.done():
            self.given_up.set_result(None)
