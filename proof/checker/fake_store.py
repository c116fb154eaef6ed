"""A queue in memory behind a slow and lossy connection, in virtual time: what the checker itself is tested with.

The queue is the naive model of `accoda.testing.reference`. The loop runs its clients one step at a time, with delays
drawn from a seed: the same seed gives the same calls to the last nanosecond.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, TypeVar

from accoda.errors import StorageUnavailable, VersionConflict
from accoda.model import Job
from accoda.storage.wrapper import Wrapper
from accoda.testing.reference import Reference

T = TypeVar("T")
_EPOCH = 1_700_000_000_000


class Sleep:
    """`await Sleep(seconds)` in a client lets that much time pass for it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self.seconds


class VirtualLoop:
    """Runs coroutines that wait for nothing but `Sleep`, in the order of their moments."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time = 0  # nanoseconds
        self._steps: list[tuple[int, int, Coroutine[float, None, Any]]] = []
        self._count = 0

    def now(self) -> int:
        """Nanoseconds. Each look is a little later than the one before, as on a real machine."""
        self.time += 1
        return self.time

    @property
    def moment(self) -> int:
        """The store's clock."""
        return _EPOCH + self.time // 1_000_000

    def start(self, client: Coroutine[Any, None, Any], after: float = 0.0) -> None:
        self._count += 1
        heappush(self._steps, (self.time + int(after * 1e9), self._count, client))

    def run(self) -> None:
        """Until all are done."""
        while self._steps:
            self.step()

    def step(self) -> None:
        """Go to the next moment and let its client do one step."""
        moment, _, client = heappop(self._steps)
        self.time = max(self.time, moment)
        try:
            seconds = client.send(None)
        except StopIteration:
            return
        self.start(client, seconds)


def now_or_never(call: Awaitable[T]) -> T:
    """The answer of a coroutine that does not wait."""
    step = call.__await__()
    try:
        next(step)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise RuntimeError("it waits")


class FakeStore(Wrapper):
    """A `Store` on a model. `loss` is the share of calls whose request is lost, or late, or whose reply is lost.
    `again` is the share of takes whose reply is lost, and that are sent again after a while."""

    def __init__(
        self, loop: VirtualLoop, model: Callable[[int], Reference] = Reference, loss: float = 0.0, again: float = 0.0
    ) -> None:
        self.loop = loop
        self.model = model(loop.moment)
        self.loss = loss
        self.again = again
        self.slow = True

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        if verb == "close":
            return None

        def act() -> Any:
            return getattr(self.model, verb)(*args, **kwargs)

        answer = await self._send(act)
        if verb != "take" or not self.again or self.loop.random.random() >= self.again:
            return answer
        await Sleep(self.loop.random.random() * 2 * kwargs.get("lease", 60.0))
        return self._do(lambda: self.take_again(answer, act))

    def take_again(self, first: list[Job], act: Callable[[], list[Job]]) -> list[Job]:
        """What a take whose answer was lost is given when it is sent again: what it still holds. One that was given
        nothing is a new one."""
        return [job for job in first if job.lease in self.model.held()] if first else act()

    async def _send(self, act: Callable[[], T]) -> T:
        chance = self.loop.random.random
        if not self.slow:
            return self._do(act)
        await Sleep(chance() * 0.02)
        lost = chance() < self.loss
        if not lost:
            answer = self._do(act)
        elif (fate := chance()) < 0.6:  # else the request never arrives
            self.loop.start(self._later(act), 0.0 if fate < 0.3 else chance() * 3)
        await Sleep(chance() * 0.02)
        if lost:
            raise StorageUnavailable("the connection is broken")
        return answer

    async def _later(self, act: Callable[[], object]) -> None:
        with suppress(VersionConflict):
            self._do(act)

    def _do(self, act: Callable[[], T]) -> T:
        self.model.advance(self.loop.moment - self.model.now)
        return act()
