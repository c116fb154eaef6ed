"""A toy queue and a town of clients that use it, in virtual time: what the checker itself is tested with.

The queue is the naive model of `accoda.testing.reference` behind a slow and lossy wire. The town runs its clients one
step at a time, by a seeded choice of delays: the same seed gives the same history to the last nanosecond.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, TypeVar

from accoda.errors import StorageUnavailable, VersionConflict
from accoda.model import (
    Document,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    Peek,
    Place,
    QueueStats,
    Rank,
    Refused,
    State,
    Stats,
)
from accoda.storage.closing import Closing
from accoda.testing.reference import Reference

T = TypeVar("T")
_EPOCH = 1_700_000_000_000


class Pause:
    """`await Pause(seconds)` in a client lets that much time pass for it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self.seconds


class Town:
    """Runs coroutines that wait for nothing but `Pause`, in the order of their moments."""

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


class Toy(Closing):
    """A `Store` on a model. `loss` is the share of calls whose request is lost, or late, or whose reply is lost.
    `again` is the share of takes whose reply is lost, and that are sent again after a while."""

    def __init__(
        self, town: Town, model: Callable[[int], Reference] = Reference, loss: float = 0.0, again: float = 0.0
    ) -> None:
        self.town = town
        self.model = model(town.moment)
        self.loss = loss
        self.again = again
        self.slow = True

    async def _call(self, act: Callable[[], T]) -> T:
        chance = self.town.random.random
        if not self.slow:
            return self._do(act)
        await Pause(chance() * 0.02)
        lost = chance() < self.loss
        if not lost:
            answer = self._do(act)
        elif (fate := chance()) < 0.6:  # else the request never arrives
            self.town.start(self._later(act), 0.0 if fate < 0.3 else chance() * 3)
        await Pause(chance() * 0.02)
        if lost:
            raise StorageUnavailable("the wire is broken")
        return answer

    async def _later(self, act: Callable[[], object]) -> None:
        with suppress(VersionConflict):
            self._do(act)

    def _do(self, act: Callable[[], T]) -> T:
        self.model.advance(self.town.moment - self.model.now)
        return act()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._call(lambda: self.model.enqueue(jobs))

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        def act() -> list[Job]:
            return self.model.take(queue, count, lease=lease, max_cost=max_cost, worker=worker)

        jobs = await self._call(act)
        if not self.again or self.town.random.random() >= self.again:
            return jobs
        await Pause(self.town.random.random() * 2 * lease)
        return self._do(lambda: self.take_again(jobs, act))

    def take_again(self, first: list[Job], act: Callable[[], list[Job]]) -> list[Job]:
        """What a take answers whose answer was lost: what is still leased by it. One that was given nothing is taken
        for a new one."""
        return [job for job in first if job.lease in self.model.held()] if first else act()

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await self._call(lambda: self.model.settle(outcomes))

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        return await self._call(lambda: self.model.extend(leases, lease))

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        return await self._call(lambda: self.model.rerank(ranks))

    async def waiters(self, lease: Lease) -> list[bytes]:
        return await self._call(lambda: self.model.waiters(lease))

    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        return await self._call(lambda: self.model.peek(queue, key, after))

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        return await self._call(lambda: self.model.drop(queue, id, waiters))

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        return await self._call(lambda: self.model.takable(queues))

    async def stats(self) -> Stats:
        counts: dict[str, QueueStats] = await self._call(lambda: self.model.stats())
        return Stats(counts)

    async def read(self, name: str) -> Document | None:
        return await self._call(lambda: self.model.read(name))

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        return await self._call(lambda: self.model.write(name, value, version=version, ttl=ttl))

    async def documents(self, prefix: str) -> list[Document]:
        return await self._call(lambda: self.model.documents(prefix))

    async def find(self, id: int) -> JobInfo | None:
        return await self._call(lambda: self.model.find(id))

    async def place(self, id: int, most: int = 1000) -> Place | None:
        return await self._call(lambda: self.model.place(id))

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        return await self._call(lambda: self.model.browse(queue, state, after, limit))

    async def remove(self, ids: Sequence[int]) -> int:
        return await self._call(lambda: self.model.remove(ids))

    async def revive(self, ids: Sequence[int]) -> int:
        return await self._call(lambda: self.model.revive(ids))

    async def start_now(self, ids: Sequence[int]) -> int:
        return await self._call(lambda: self.model.start_now(ids))

    async def pause(self, queue: str, until: int | None = None) -> None:
        await self._call(lambda: self.model.pause(queue, until))

    async def resume(self, queue: str) -> None:
        await self._call(lambda: self.model.resume(queue))

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        return await self._call(lambda: self.model.purge(queue, state, before, limit))
