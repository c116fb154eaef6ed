"""What the runners share: how calls of a handler are stopped, and what becomes of those that do not end."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack, suppress
from typing import Any

from accoda.errors import HandlerTimeout, InvalidInput
from accoda.runtime.batch import BatchRun, current
from accoda.runtime.handler import Handler
from accoda.runtime.logs.job_lines import with_lines
from accoda.runtime.middleware import Around

log = logging.getLogger("accoda.runners")

GRACE = 1.0
"""Seconds that a handler gets to end after it was stopped; then its batch goes on without it."""


class BaseRunner:
    """A runner gives `handle`, which calls the handler, and `_halt`, which stops calls that are under way."""

    grace = GRACE
    problem = ""

    def __init__(self, handler: Handler[Any, Any, Any]) -> None:
        self.handler = handler
        self._invoke = invoker(handler)
        self._strays: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Threads and tasks are there when they are needed."""

    async def handle(self, batch: BatchRun) -> None:
        raise NotImplementedError

    def _halt(self, batch: BatchRun, ids: Collection[int]) -> None:
        """Stop the calls that run these jobs. Their results are fixed already."""
        raise NotImplementedError

    def stop(self, batch: BatchRun, ids: Collection[int], error: BaseException) -> bool:
        if not batch.running:
            return False
        fixed = batch.fix(ids, error)
        whole = batch.has_all_results() and (fixed or len(ids) >= len(batch))
        if not self.handler.takes_batch:
            self._halt(batch, ids)
        elif whole:
            batch.error = batch.error or error
            self._halt(batch, batch.ids())
        return whole

    async def close(self) -> None:
        if self._strays:
            for task in self._strays:
                task.cancel()
            await asyncio.wait(tuple(self._strays), timeout=self.grace)

    def leave_behind(self, task: asyncio.Task[None], what: str) -> None:
        """A task that does not end although it was cancelled: its batch goes on without it."""
        log.warning("%s was stopped but does not end; its batch continues without it", what)
        self._strays.add(task)
        task.add_done_callback(self._strays.discard)
        task.cancel()


class ThreadLink:
    """The way back to the loop from a thread in which a batch is handled. `over` is done when the last call ended."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()

    def end(self, error: BaseException | None = None) -> None:
        """From whatever thread: the calls are over. `error` is raised where `over` is awaited."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self.loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)


def invoker(handler: Handler[Any, Any, Any]) -> Callable[[Any], Any]:
    """The handler's function as a function of one argument: the batch, or the payload.

    With what the app puts around its handlers, entered in the thread, task or process that calls it.
    """
    function: Callable[..., Any] = handler.function
    call = with_lines(function if handler.takes_payload else lambda _: function())
    around = handler.app.around
    if not around:
        return call
    if handler.is_async:
        return _entered_async(handler, call, around)
    for layer in around:
        if inspect.isasyncgenfunction(inspect.unwrap(layer)):
            raise _needs_sync(layer, handler)
    return _entered(handler, call, around)


def _entered(
    handler: Handler[Any, Any, Any], call: Callable[[Any], Any], around: Sequence[Around]
) -> Callable[[Any], Any]:
    whole = handler.takes_batch

    def run(argument: Any) -> Any:
        subject = argument if whole else current.get()
        with ExitStack() as stack:
            for layer in around:
                manager = layer(subject)
                if not isinstance(manager, AbstractContextManager):
                    raise _needs_sync(layer, handler)
                stack.enter_context(manager)
            return call(argument)

    return run


def _entered_async(
    handler: Handler[Any, Any, Any], call: Callable[[Any], Any], around: Sequence[Around]
) -> Callable[[Any], Any]:
    whole = handler.takes_batch

    async def run(argument: Any) -> Any:
        subject = argument if whole else current.get()
        async with AsyncExitStack() as stack:
            for layer in around:
                manager = layer(subject)
                if isinstance(manager, AbstractAsyncContextManager):
                    await stack.enter_async_context(manager)
                else:
                    stack.enter_context(manager)
            return await call(argument)

    return run


def _needs_sync(layer: Around, handler: Handler[Any, Any, Any]) -> InvalidInput:
    name = getattr(layer, "__qualname__", repr(layer))
    return InvalidInput(
        "around", f"{name} gives no plain context manager, and {handler.__name__} is a def handler: use @contextmanager"
    )


def over_time(handler: Handler[Any, Any, Any], timeout: float | None) -> HandlerTimeout:
    """The error of a run that took too long."""
    return HandlerTimeout(f"{handler.__name__} ran longer than its timeout of {timeout:g} s")
