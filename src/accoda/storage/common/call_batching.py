"""Small calls that are made while others like them are on their way are sent together, as one call.

A call to a server costs a round trip, a transaction and a write to disk, however little it does. The first call goes at
once, alone: a single caller never waits. Calls made while it is on its way are collected, and go together when it is
back. After calls went together, the first of the next ones waits for one turn of the event loop: callers that were
answered in the same moment mostly make their next calls in the same moment.

For each caller it is as if its call had been sent by itself right after the earlier ones. Only calls for which that
holds may be batched; the code that uses this class says why it does. No answer comes from a call that was sent before
the caller asked.

- Where the server refuses a batch, which then changed nothing, each of its calls is sent by itself, in order, and gets
  its own answer or error. Where it is not known whether a batch took effect, every caller is told so.
- Where a caller is cancelled, the batch goes on for the others. An answer that comes too late for it goes to `late`.
- A slow call (a lock, a server that hangs) does not hold up the ones behind it: they pass it after `HELD_UP_FOR`.

Each verb has its own batches, and never waits for another verb's: calls of two verbs cannot be one call, so that would
save nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar

from accoda.errors import StorageClosed, StorageError, StorageUnavailable
from accoda.storage.common.loop_affinity import LoopAffinity
from accoda.storage.common.reconnecting import patience_limit

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

SMALL = 50  # jobs: a larger call goes alone, since batching would save little
MOST = 1000  # jobs in one batch
HELD_UP_FOR = 0.05  # seconds
BUSY_FOR = 0.1  # seconds after a batch in which the next first call waits for one turn of the loop
_MOST_BUSY = 256  # lanes remembered as busy

_Lane = tuple[K, float]
"""The key, and how long its calls may wait for a server that is away: only calls with equal limits go together."""
_Collected = list[tuple[A, int, "asyncio.Future[R]"]]


class _Traffic(Generic[A, R]):
    """A lane's calls, from the first one on its way until none is left."""

    __slots__ = ("collected", "held_up", "on_the_way")

    def __init__(self) -> None:
        self.collected: _Collected[A, R] = []
        self.on_the_way = 0
        self.held_up: asyncio.TimerHandle | None = None


class CallBatching(Generic[K, A, R]):
    """One verb of one storage.

    `many` carries out one or more calls with the same key, and returns an answer for each in their order, or the error
    to raise to that caller. It raises a `StorageError` only if nothing was changed, or one that says that this is not
    known. `late` gets answers whose callers are gone. With `home`, calls may come from any loop and thread; without,
    they must come from one loop.
    """

    def __init__(
        self,
        many: Callable[[K, list[A]], Awaitable[Sequence[R | BaseException]]],
        late: Callable[[K, R], None] | None = None,
        home: LoopAffinity | None = None,
    ) -> None:
        self._many = many
        self._late = late
        self._home = home
        self._traffic: dict[_Lane[K], _Traffic[A, R]] = {}
        self._busy_since: dict[_Lane[K], float] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # so that none is garbage-collected while it runs

    async def call(self, key: K, argument: A, size: int = 1) -> R:
        """Carry out a call about `size` jobs, together with others of the same key if there are any."""
        home = self._home
        if home is not None and (home.closed or asyncio.get_running_loop() is not home.loop):
            return await home.run(self.call(key, argument, size))
        if size > SMALL:
            return await self._alone(key, argument)
        lane = key, patience_limit.get()
        traffic = self._traffic.get(lane)
        if traffic is not None:
            return await self._collect(lane, traffic, argument, size)
        traffic = self._traffic[lane] = _Traffic()
        traffic.on_the_way = 1
        if self._busy_since and self._is_busy(lane):
            asyncio.get_running_loop().call_soon(self._next_turn, lane, traffic)
            return await self._collect(lane, traffic, argument, size)
        try:
            return await self._alone(key, argument)
        finally:
            self._arrived(lane, traffic)

    async def finish(self, within: float) -> None:
        """Give the batches on their way some seconds to arrive."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within)

    async def _alone(self, key: K, argument: A) -> R:
        if self._late is None:
            return await self._one(key, argument)
        # A task of its own goes on when the caller is cancelled, and has an answer that can be handed to `late`.
        task = self._start(self._one(key, argument))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(self._too_late, key))
            raise

    async def _one(self, key: K, argument: A) -> R:
        (answer,) = await self._many(key, [argument])
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _start(self, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _too_late(self, key: K, answer: asyncio.Future[R]) -> None:
        """The caller of this one is gone."""
        if self._late is not None and not answer.cancelled() and answer.exception() is None:
            self._late(key, answer.result())

    def _is_busy(self, lane: _Lane[K]) -> bool:
        since = self._busy_since.get(lane)
        if since is None:
            return False
        if asyncio.get_running_loop().time() - since < BUSY_FOR:
            return True
        del self._busy_since[lane]
        return False

    def _note_busy(self, lane: _Lane[K]) -> None:
        self._busy_since[lane] = asyncio.get_running_loop().time()
        if len(self._busy_since) > _MOST_BUSY:
            del self._busy_since[next(iter(self._busy_since))]

    async def _collect(self, lane: _Lane[K], traffic: _Traffic[A, R], argument: A, size: int) -> R:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        traffic.collected.append((argument, size, answer))
        if traffic.held_up is None:
            traffic.held_up = loop.call_later(HELD_UP_FOR, self._send, lane, traffic)
        try:
            return await answer
        except asyncio.CancelledError:
            # The answer may have arrived in the very turn in which this caller was cancelled.
            if answer.done():
                self._too_late(lane[0], answer)
            raise

    def _arrived(self, lane: _Lane[K], traffic: _Traffic[A, R]) -> None:
        if traffic.on_the_way == 1:
            # The next batch goes a turn later, so that it takes along the next calls of those just answered. Until then
            # the lane has traffic, and their calls are collected.
            asyncio.get_running_loop().call_soon(self._next_turn, lane, traffic)
        else:
            traffic.on_the_way -= 1

    def _next_turn(self, lane: _Lane[K], traffic: _Traffic[A, R]) -> None:
        traffic.on_the_way -= 1
        self._send(lane, traffic)
        if traffic.on_the_way == 0:
            del self._traffic[lane]

    def _send(self, lane: _Lane[K], traffic: _Traffic[A, R]) -> None:
        if traffic.held_up is not None:
            traffic.held_up.cancel()
            traffic.held_up = None
        collected, traffic.collected = traffic.collected, []
        for batch in _batches(collected):
            traffic.on_the_way += 1
            if len(batch) > 1:
                self._note_busy(lane)
            # An empty context: a batch is for all its callers, so it must not run in the context of one of them.
            self._start(self._run(lane, traffic, batch), Context())

    async def _run(self, lane: _Lane[K], traffic: _Traffic[A, R], batch: _Collected[A, R]) -> None:
        key, patience = lane
        patience_limit.set(patience)
        try:
            answers = await self._answers(key, [argument for argument, _, _ in batch])
        except BaseException as error:  # the event loop ends: no caller may be left without an answer
            answers = [error] * len(batch)
        finally:
            self._arrived(lane, traffic)
        for (_, _, caller), answer in zip(batch, answers, strict=True):
            if caller.done():  # cancelled
                if self._late is not None and not isinstance(answer, BaseException):
                    self._late(key, answer)
            elif isinstance(answer, asyncio.CancelledError):
                caller.cancel()
            elif isinstance(answer, BaseException):
                caller.set_exception(answer)
            else:
                caller.set_result(answer)

    async def _answers(self, key: K, arguments: list[A]) -> list[R | BaseException]:
        """For each call its answer, or the error to raise."""
        try:
            return [*await self._many(key, arguments)]
        except Exception as error:
            if len(arguments) == 1 or not _is_refused(error):
                return [error] * len(arguments)
        return [(await self._answers(key, [argument]))[0] for argument in arguments]


def _is_refused(error: Exception) -> bool:
    """Whether the server said that the call changed nothing, perhaps because of only one of its parts."""
    return isinstance(error, StorageError) and not isinstance(error, (StorageUnavailable, StorageClosed))


def _batches(calls: _Collected[A, R]) -> list[_Collected[A, R]]:
    """The calls that were not cancelled, in order, in batches of at most `MOST` jobs."""
    batches: list[list[Any]] = []
    total = MOST
    for call in calls:
        if call[2].done():
            continue
        total += call[1]
        if total > MOST or not batches:
            total = call[1]
            batches.append([])
        batches[-1].append(call)
    return batches
