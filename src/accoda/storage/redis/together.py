"""Small calls of many tasks that come while others are on their way go together, as one script for each kind of call.

A script costs as much as many jobs in it: put together, sixteen tasks that take and settle one job each were served
twice as fast (`docs/decisions/0004-redis.md`). The first call goes at once, alone: one task by itself waits for nobody.
Those that come while it is on its way are collected, and go when all that went before has arrived. For each caller it
is as if his call had been sent right after the earlier ones: only calls for which that holds are put together
(`jobs.py`, `looks.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from typing import Any, Generic, TypeVar

from accoda.errors import StorageUnavailable
from accoda.storage.patience import patience_of
from accoda.storage.redis.keys import Shard

A = TypeVar("A")
R = TypeVar("R")
MOST = 1000  # jobs in one joined call
SMALL = 50  # a call with more jobs goes alone: little is left to save


class Kind(Generic[A, R]):
    """`run` carries out several calls with the same key at once and gives an answer for each, in their order. An answer
    that is an exception is raised to that caller alone."""

    def __init__(self, run: Callable[[Hashable, list[A], list[asyncio.Future[R]]], Awaitable[list[R]]]) -> None:
        self.run = run


Waiting = list[tuple[Any, int, asyncio.Future[Any]]]


class Shared:
    """The calls to each shard, whatever module they come from."""

    def __init__(self, in_trouble: Callable[[], bool]) -> None:
        self._in_trouble = in_trouble
        self._places: dict[str, Together] = {}  # by the root of a shard

    def to(self, shard: Shard) -> Together:
        together = self._places.get(shard.root)
        if together is None:
            together = self._places[shard.root] = Together(self._in_trouble)
        return together

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Joined calls on their way."""
        return [task for together in self._places.values() for task in together.tasks]


class Together:
    """The calls to one shard."""

    def __init__(self, in_trouble: Callable[[], bool]) -> None:
        self._in_trouble = in_trouble
        # A joined call is for all its callers, so it waits as long as the most patient of them would: it has a context
        # of its own. Who has less time leaves it: `_look_after`.
        self._context = Context()
        self._on_the_way = 0
        self._waiting: dict[tuple[Kind[Any, Any], Hashable], Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def call(
        self, kind: Kind[A, R], key: Hashable, argument: A, size: int, alone: Callable[[], Awaitable[R]]
    ) -> Awaitable[R]:
        """Calls of the same kind with the same key may go together; `alone` carries out this one by itself."""
        if size > SMALL:
            return alone()
        if self._on_the_way:
            answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault((kind, key), []).append((argument, size, answer))
            if (patience := patience_of(math.inf)) < math.inf:
                self._look_after(answer, patience)
            return answer
        return self._go_alone(alone)

    async def _go_alone(self, alone: Callable[[], Awaitable[R]]) -> R:
        self._on_the_way += 1
        try:
            return await alone()
        finally:
            if self._waiting or self._on_the_way > 1:
                self._arrived()
            else:
                self._on_the_way = 0

    def _look_after(self, answer: asyncio.Future[Any], patience: float) -> None:
        """Let a caller go who has not the time to wait until a server that is away is back. One that is only slow is
        waited for, as it is by a call that goes alone."""

        def look() -> None:
            if answer.done():  # in this very turn of the loop
                return
            if self._in_trouble():
                self._give_up(answer, patience)
            else:
                self._look_after(answer, patience)

        timer = asyncio.get_running_loop().call_later(patience, look)
        answer.add_done_callback(lambda _: timer.cancel())

    def _give_up(self, answer: asyncio.Future[Any], patience: float) -> None:
        # What still waits to be sent is left out by `_send`, for its answer is there. What is on its way may arrive.
        sent = not any(each is answer for calls in self._waiting.values() for _, _, each in calls)
        doubt = "whether it took effect is not known" if sent else "nothing was changed"
        answer.set_exception(
            StorageUnavailable(f"Redis is away, and did not carry it out within {patience:g} s; {doubt}", unsure=sent)
        )

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """Joined calls on their way."""
        return self._tasks

    def _arrived(self) -> None:
        if self._on_the_way == 1:
            # Not at once, but after those who were just answered have had their turn: often they have a next call.
            asyncio.get_running_loop().call_soon(self._send)
        else:
            self._on_the_way -= 1

    def _send(self) -> None:
        self._on_the_way = 0
        waiting, self._waiting = self._waiting, {}
        loop = asyncio.get_running_loop()
        for (kind, key), calls in waiting.items():
            total = 0
            part: Waiting = []
            parts = [part]
            for call in calls:
                if call[2].done():  # cancelled, or out of patience
                    continue
                total += call[1]
                if total > MOST:
                    total, part = call[1], []
                    parts.append(part)
                part.append(call)
            for part in filter(None, parts):
                self._on_the_way += 1
                task = loop.create_task(self._run_joined(kind, key, part), context=self._context)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run_joined(self, kind: Kind[Any, Any], key: Hashable, calls: Waiting) -> None:
        futures = [answer for _, _, answer in calls]
        try:
            answers = await kind.run(key, [argument for argument, _, _ in calls], futures)
            for future, answer in zip(futures, answers, strict=True):
                if not future.done():
                    if isinstance(answer, BaseException):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        except BaseException as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._arrived()
