"""Small calls of many callers that come while others like them are on their way go together, as one call.

A call to a server costs a round trip, a transaction and a write to the disk, however little it does. The first caller
goes at once, alone: one caller by himself waits for nobody. Those who come while he is on his way are collected, and go
together when he is back. Where calls have just gone together, the first one gives the others a turn of the event loop
to come with him: they were answered in the same moment, so their next calls come in the same moment.

For each of them it is as if his call had been sent by itself right after the earlier ones: only calls for which that
holds may be put together, and whoever uses this says why it does.

What can go wrong stays with him whom it concerns:
- The server refuses a joined call, which then changed nothing: each of its calls goes by itself, in their order, and
  has its own answer or error. Where it is not known whether it took effect, or where nobody answers, all are told.
- A caller who is cancelled leaves; the others' call goes on. What came for him too late is handed to `late`.
- A call on its way that is slow (a lock, a server that hangs) holds nobody up for long: after `HELD_UP_FOR` those who
  have collected behind it go past it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context
from typing import Any, Generic, TypeVar

from accoda.errors import StorageClosed, StorageError, StorageUnavailable
from accoda.storage.patience import patience_of, wait_at_most

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
R = TypeVar("R")

SMALL = 50  # jobs: a call with more of them goes alone, for little is left to save
MOST = 1000  # jobs in one joined call
HELD_UP_FOR = 0.05  # seconds
CROWDED_FOR = 0.1  # seconds after a joined call in which the first of the next ones waits a turn of the loop for others
_MOST_CROWDS = 256  # that are remembered

_Waiting = list[tuple[A, int, "asyncio.Future[R]"]]


class _Lane(Generic[A, R]):
    """Calls that may go together, from the first one on its way until none is left."""

    __slots__ = ("held_up", "on_the_way", "waiting")

    def __init__(self) -> None:
        self.waiting: _Waiting[A, R] = []
        self.on_the_way = 0
        self.held_up: asyncio.TimerHandle | None = None


class Joining(Generic[K, A, R]):
    """One verb of one storage; all is done in the storage's own event loop.

    `one` carries out a call by itself. `many` carries out several calls with the same key at once, and gives an answer
    for each, in their order, or the error to raise to that caller. Raises `StorageError` only if it changed nothing, or
    one that says that this is not known. `late` gets what nobody waits for any more.
    """

    def __init__(
        self,
        one: Callable[[K, A], Awaitable[R]],
        many: Callable[[K, list[A]], Awaitable[Sequence[R | BaseException]]],
        late: Callable[[K, R], None] | None = None,
    ) -> None:
        self._one = one
        self._many = many
        self._late = late
        self._lanes: dict[tuple[K, float], _Lane[A, R]] = {}
        self._crowds: dict[tuple[K, float], float] = {}  # when calls last went together
        self._tasks: set[asyncio.Task[None]] = set()  # so that none is collected while it runs

    async def call(self, key: K, argument: A, size: int = 1) -> R:
        """Carry out a call about `size` jobs, together with others of the same key if there are any."""
        if size > SMALL:
            return await self._one(key, argument)
        # How long a call may wait for a server that is away differs: those go together who have as much time.
        place = key, patience_of(math.inf)
        lane = self._lanes.get(place)
        if lane is not None:
            return await self._stand_by(place, lane, argument, size)
        lane = self._lanes[place] = _Lane()
        lane.on_the_way = 1
        if self._crowds and self._is_crowded(place):
            asyncio.get_running_loop().call_soon(self._turn, place, lane)
            return await self._stand_by(place, lane, argument, size)
        try:
            return await self._one(key, argument)
        finally:
            self._arrived(place, lane)

    def _is_crowded(self, place: tuple[K, float]) -> bool:
        since = self._crowds.get(place)
        if since is None:
            return False
        if asyncio.get_running_loop().time() - since < CROWDED_FOR:
            return True
        del self._crowds[place]
        return False

    def _note_crowd(self, place: tuple[K, float]) -> None:
        self._crowds[place] = asyncio.get_running_loop().time()
        if len(self._crowds) > _MOST_CROWDS:
            del self._crowds[next(iter(self._crowds))]

    async def _stand_by(self, place: tuple[K, float], lane: _Lane[A, R], argument: A, size: int) -> R:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        lane.waiting.append((argument, size, answer))
        if lane.held_up is None:
            lane.held_up = loop.call_later(HELD_UP_FOR, self._send, place, lane)
        try:
            return await answer
        except asyncio.CancelledError:
            # It may have come in the very moment in which we were cancelled.
            if self._late is not None and answer.done() and not answer.cancelled() and answer.exception() is None:
                self._late(place[0], answer.result())
            raise

    def _arrived(self, place: tuple[K, float], lane: _Lane[A, R]) -> None:
        if lane.on_the_way == 1:
            # Not at once, but after those who were just answered have had their turn: often they have a next call.
            # Until then the lane counts as busy, so that their calls are collected.
            asyncio.get_running_loop().call_soon(self._turn, place, lane)
        else:
            lane.on_the_way -= 1

    def _turn(self, place: tuple[K, float], lane: _Lane[A, R]) -> None:
        lane.on_the_way -= 1
        self._send(place, lane)
        if lane.on_the_way == 0:
            del self._lanes[place]

    def _send(self, place: tuple[K, float], lane: _Lane[A, R]) -> None:
        if lane.held_up is not None:
            lane.held_up.cancel()
            lane.held_up = None
        waiting, lane.waiting = lane.waiting, []
        loop = asyncio.get_running_loop()
        for part in _parts(waiting):
            lane.on_the_way += 1
            if len(part) > 1:
                self._note_crowd(place)
            # A context of its own: it is for all its callers, none of whom should be seen in it.
            task = loop.create_task(self._run(place, lane, part), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, place: tuple[K, float], lane: _Lane[A, R], calls: _Waiting[A, R]) -> None:
        wait_at_most(place[1])
        try:
            answers = await self._answers(place[0], [argument for argument, _, _ in calls])
        except BaseException as error:  # the end of the loop: whoever still waits must not wait for ever
            answers = [error] * len(calls)
        finally:
            self._arrived(place, lane)
        for (_, _, future), answer in zip(calls, answers, strict=True):
            if future.done():  # its caller is gone
                if self._late is not None and not isinstance(answer, BaseException):
                    self._late(place[0], answer)
            elif isinstance(answer, asyncio.CancelledError):
                future.cancel()
            elif isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _answers(self, key: K, arguments: list[A]) -> list[R | BaseException]:
        """What each is told: an answer, or the error to raise."""
        if len(arguments) > 1:
            try:
                return [*await self._many(key, arguments)]
            except Exception as error:
                if not _is_refused(error):
                    return [error] * len(arguments)
        return [await self._alone(key, argument) for argument in arguments]

    async def _alone(self, key: K, argument: A) -> R | BaseException:
        try:
            return await self._one(key, argument)
        except Exception as error:
            return error


def _is_refused(error: Exception) -> bool:
    """Whether the server has said that the call changed nothing, perhaps for the sake of one of its parts."""
    return isinstance(error, StorageError) and not isinstance(error, (StorageUnavailable, StorageClosed))


def _parts(calls: _Waiting[A, R]) -> list[_Waiting[A, R]]:
    """Those whose callers are still there, in order, in parts of at most `MOST` jobs."""
    parts: list[list[Any]] = []
    total = MOST
    for call in calls:
        if call[2].done():
            continue
        total += call[1]
        if total > MOST:
            total = call[1]
            parts.append([])
        parts[-1].append(call)
    return parts
