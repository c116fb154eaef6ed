"""Wraps any storage and tells an observer about every call: for metrics, tracing and tests. Written once, for all.

tally = Tally()
store = Observed(await open_storage(url), tally)
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

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
    Rank,
    Refused,
    State,
    Stats,
)
from accoda.storage.closing import Closing
from accoda.storage.protocol import Store

T = TypeVar("T")


class Call(Struct, frozen=True, gc=False):
    """One call that has ended: which verb, for which queue ("" if none or several), of how many jobs or names, how long
    it took, and the error that it raised, if any."""

    verb: str
    queue: str
    size: int
    seconds: float
    error: BaseException | None


Observer = Callable[[Call], None]


class Total(Struct):
    """What a verb came to: calls, jobs or names in them, seconds, errors."""

    calls: int = 0
    size: int = 0
    seconds: float = 0.0
    errors: int = 0


class Tally:
    """The simplest observer: sums by verb."""

    def __init__(self) -> None:
        self.totals: dict[str, Total] = {}

    def __call__(self, call: Call) -> None:
        total = self.totals.setdefault(call.verb, Total())
        total.calls += 1
        total.size += call.size
        total.seconds += call.seconds
        total.errors += call.error is not None


class Observed(Closing):
    """A `Store` that passes everything on to another and reports each call when it has ended."""

    def __init__(self, store: Store, observer: Observer) -> None:
        self._store = store
        self._observer = observer

    async def _report(self, verb: str, queue: str, size: int, call: Awaitable[T], *args: object) -> T:
        """Await the call. `args` are the verb's own, for a subclass that wants to know more than the observer."""
        start = time.perf_counter()
        error: BaseException | None = None
        try:
            return await call
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._observer(Call(verb, queue, size, time.perf_counter() - start, error))

    async def close(self) -> None:
        await self._report("close", "", 0, self._store.close())

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._report("enqueue", _queue_of(jobs), _size(jobs), self._store.enqueue(jobs), jobs)

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        call = self._store.take(queue, count, lease=lease, max_cost=max_cost, worker=worker)
        return await self._report("take", queue, count, call, queue, count, lease, max_cost)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await self._report("settle", "", _size(outcomes), self._store.settle(outcomes), outcomes)

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        call = self._store.extend(leases, lease)
        return await self._report("extend", _queue_of(leases), _size(leases), call, leases, lease)

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        return await self._report("rerank", _queue_of(ranks), _size(ranks), self._store.rerank(ranks), ranks)

    async def waiters(self, lease: Lease) -> list[bytes]:
        return await self._report("waiters", _queue_of([lease]), 1, self._store.waiters(lease), lease)

    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        call = self._store.peek(queue, key, after=after)
        return await self._report("peek", queue, 1, call, queue, key, after)

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        return await self._report("drop", queue, 1, self._store.drop(queue, id, waiters), queue, id, waiters)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        return await self._report("wait", "", _size(queues), self._store.wait(queues, timeout))

    async def stats(self) -> Stats:
        return await self._report("stats", "", 0, self._store.stats())

    async def read(self, name: str) -> Document | None:
        return await self._report("read", "", 1, self._store.read(name), name)

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        call = self._store.write(name, value, version=version, ttl=ttl)
        return await self._report("write", "", 1, call, name, version)

    async def documents(self, prefix: str) -> list[Document]:
        return await self._report("documents", "", 1, self._store.documents(prefix))

    async def find(self, id: int) -> JobInfo | None:
        return await self._report("find", "", 1, self._store.find(id), id)

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        call = self._store.browse(queue, state, after, limit)
        return await self._report("browse", queue, 1, call, queue, state)

    async def place(self, id: int, most: int = 1000) -> Place | None:
        return await self._report("place", "", 1, self._store.place(id, most), id)

    async def remove(self, ids: Sequence[int]) -> int:
        return await self._report("remove", "", _size(ids), self._store.remove(ids), ids)

    async def revive(self, ids: Sequence[int]) -> int:
        return await self._report("revive", "", _size(ids), self._store.revive(ids), ids)

    async def start_now(self, ids: Sequence[int]) -> int:
        return await self._report("start_now", "", _size(ids), self._store.start_now(ids), ids)

    async def pause(self, queue: str, until: int | None = None) -> None:
        await self._report("pause", queue, 1, self._store.pause(queue, until), queue, until)

    async def resume(self, queue: str) -> None:
        await self._report("resume", queue, 1, self._store.resume(queue), queue)

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        call = self._store.purge(queue, state, before=before, limit=limit)
        return await self._report("purge", queue, 1, call, queue, state, before, limit)


def _size(items: object) -> int:
    """How many; 0 for what is no list, which the storage itself will refuse."""
    return len(items) if isinstance(items, Sequence) else 0


def _queue_of(items: Sequence[NewJob | Lease | Rank]) -> str:
    """The queue of the first, which is that of all in nearly every call."""
    return getattr(items[0], "queue", "") if _size(items) else ""
