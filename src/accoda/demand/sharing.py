"""Calls for the same thing that come while one is on its way go together in the next one.

Thirty who ask for the same key at once make two calls instead of thirty: the first goes at once, alone, and the others
share the next. Nobody gets an answer from a call that was sent before he asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")

MOST = 500
"""Arguments of one call."""


class Sharing(Generic[A, R]):
    """`run` carries out the calls with the same key: it is given their arguments, and gives as many answers.

    Without `at_once` the first one waits for those who are about to call in the same turn of the loop, and takes them
    along: for calls that often come in herds. Belongs to one event loop: between two awaits nothing else happens.
    """

    def __init__(self, run: Callable[[list[A]], Awaitable[Sequence[R]]], *, at_once: bool = True) -> None:
        self._run = run
        self._at_once = at_once
        self._busy: set[Hashable] = set()
        self._waiting: dict[Hashable, list[tuple[A, asyncio.Future[R]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, key: Hashable, argument: A) -> R:
        if key in self._busy or not self._at_once:
            answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, []).append((argument, answer))
            if key not in self._busy:
                self._start(key)
            return await answer
        self._busy.add(key)
        try:
            return (await self._run([argument]))[0]
        finally:
            if key in self._waiting:
                self._start(key)
            else:
                self._busy.discard(key)

    def _start(self, key: Hashable) -> None:
        """A task of its own: a caller who is cancelled does not take those who wait with him."""
        self._busy.add(key)
        task = asyncio.get_running_loop().create_task(self._go_on(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _go_on(self, key: Hashable) -> None:
        try:
            while calls := self._waiting.pop(key, None):
                for start in range(0, len(calls), MOST):
                    await self._answer([call for call in calls[start : start + MOST] if not call[1].done()])
        finally:
            self._busy.discard(key)

    async def _answer(self, calls: list[tuple[A, asyncio.Future[R]]]) -> None:
        if not calls:
            return
        try:
            answers = await self._run([argument for argument, _ in calls])
            for (_, future), answer in zip(calls, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        except BaseException as error:
            for _, future in calls:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
