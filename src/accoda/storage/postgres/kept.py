"""Awaits a coroutine that goes on when its caller is cancelled, as with `asyncio.shield`, without a task of its own.

A task costs a turn of the event loop before its first step and one after its last. Where an idle worker was woken for a
job, those are felt. So here the caller's own task does the steps, and another takes over only where the caller is
cancelled, or where the coroutine waits a second time: a call that is sent again, a statement that is new to its
connection.

So until its second wait the coroutine must not be inside of anything that belongs to a task, as `asyncio.timeout` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_Wait = asyncio.Future[Any] | None  # what a coroutine yields to its task; None: a turn of the loop


class Kept(Generic[T]):
    """Await it once. `rest` is then what goes on if the caller was cancelled; None if nothing was left to do."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self.rest: asyncio.Future[T] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            wait: _Wait = self._work.send(None)
            if wait is not None:
                yield from self._until_done(wait)
                wait = self._work.send(None)  # it asks the future for its result, or error, by itself
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        return (yield from asyncio.shield(self._hand_over(wait)).__await__())

    def _until_done(self, wait: asyncio.Future[Any]) -> Generator[Any, Any, None]:
        """Not by the future itself: it would be cancelled together with us."""
        wait._asyncio_future_blocking = False  # set by whoever yields it, to be cleared by whoever takes care of it
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wait.add_done_callback(lambda _: None if done.done() else done.set_result(None))
        try:
            yield from done.__await__()
        except asyncio.CancelledError:
            self._hand_over(wait)
            raise

    def _hand_over(self, wait: _Wait) -> asyncio.Future[T]:
        self.rest = asyncio.get_running_loop().create_task(_go_on(self._work, wait))
        return self.rest


async def _go_on(work: Coroutine[Any, Any, T], wait: _Wait) -> T:
    return await _steps(work, wait)


@coroutine
def _steps(work: Coroutine[Any, Any, T], wait: _Wait) -> Generator[_Wait, None, T]:
    """A coroutine from its wait on."""
    if wait is not None:
        wait._asyncio_future_blocking = True
    while True:
        try:
            yield wait
        except BaseException as problem:
            error: BaseException | None = problem
        else:
            error = None
        try:
            wait = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
