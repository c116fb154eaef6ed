"""A process's connection to the simulated store: the `Store` that its App, worker, keeper and manager call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from accoda.clock import Clock
from accoda.connections import Connections
from accoda.errors import StorageClosed
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
from accoda.testing.history import Recorded
from accoda.testing.simulation.lane import Lane
from accoda.testing.simulation.server import Call, Make, Server

if TYPE_CHECKING:
    from accoda.testing.simulation.process import Process


class SimStore(Closing):
    """One connection. Every verb is a call that travels to the server."""

    def __init__(self, server: Server, process: Process) -> None:
        self.server = server
        self.core = server.core
        self.process = process
        self.closed = False

    async def _call(self, verb: str, size: int, make: Make, leases: Sequence[Lease] = ()) -> Any:
        if self.closed or self.server.world.over:
            raise StorageClosed("this connection was closed")
        process = self.process
        if process.trap is not None and process.sprung(verb, "before"):
            await process.freeze()
        call = Call(self, cast(Lane, asyncio.get_running_loop()), verb, size, make)
        call.leases = leases
        self.server.send(call)
        if process.trap is not None and process.sprung(verb, "sent"):
            await process.freeze()
        try:
            return await call.future
        except asyncio.CancelledError:
            if verb == "wait":
                self.server.drop(call)
            raise

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.server.drop_store(self)

    # -- the verbs

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._call("enqueue", len(jobs), partial(self.core.enqueue, jobs))  # type: ignore[no-any-return]

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        verb = partial(self.core.take, queue, count, lease=lease, max_cost=max_cost, worker=worker)
        return await self._call("take", count, verb)  # type: ignore[no-any-return]

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        self.process.city.look_at(outcomes)
        leases = [outcome.lease for outcome in outcomes]
        return await self._call("settle", len(outcomes), partial(self.core.settle, outcomes), leases)  # type: ignore[no-any-return]

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        return await self._call("extend", len(leases), partial(self.core.extend, leases, lease), leases)  # type: ignore[no-any-return]

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        return await self._call("rerank", len(ranks), partial(self.core.rerank, ranks))  # type: ignore[no-any-return]

    async def waiters(self, lease: Lease) -> list[bytes]:
        return await self._call("waiters", 1, partial(self.core.waiters, lease))  # type: ignore[no-any-return]

    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        return await self._call("peek", 1, partial(self.core.peek, queue, key, after=after))  # type: ignore[no-any-return]

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        return await self._call("drop", 1, partial(self.core.drop, queue, id, waiters))  # type: ignore[no-any-return]

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        return await self._call("wait", 1, partial(self.core.wait, queues, timeout))  # type: ignore[no-any-return]

    async def stats(self) -> Stats:
        return await self._call("stats", 1, partial(self.core.stats))  # type: ignore[no-any-return]

    async def read(self, name: str) -> Document | None:
        return await self._call("read", 1, partial(self.core.read, name))  # type: ignore[no-any-return]

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        return await self._call("write", 1, partial(self.core.write, name, value, version=version, ttl=ttl))  # type: ignore[no-any-return]

    async def documents(self, prefix: str) -> list[Document]:
        return await self._call("documents", 1, partial(self.core.documents, prefix))  # type: ignore[no-any-return]

    async def find(self, id: int) -> JobInfo | None:
        return await self._call("find", 1, partial(self.core.find, id))  # type: ignore[no-any-return]

    async def place(self, id: int, most: int = 1000) -> Place | None:
        return await self._call("place", 1, partial(self.core.place, id, most))  # type: ignore[no-any-return]

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        return await self._call("browse", 1, partial(self.core.browse, queue, state, after, limit))  # type: ignore[no-any-return]

    async def remove(self, ids: Sequence[int]) -> int:
        return await self._call("remove", len(ids), partial(self.core.remove, ids))  # type: ignore[no-any-return]

    async def revive(self, ids: Sequence[int]) -> int:
        return await self._call("revive", len(ids), partial(self.core.revive, ids))  # type: ignore[no-any-return]

    async def start_now(self, ids: Sequence[int]) -> int:
        return await self._call("start_now", len(ids), partial(self.core.start_now, ids))  # type: ignore[no-any-return]

    async def pause(self, queue: str, until: int | None = None) -> None:
        await self._call("pause", 1, partial(self.core.pause, queue, until))

    async def resume(self, queue: str) -> None:
        await self._call("resume", 1, partial(self.core.resume, queue))

    async def purge(self, queue: str, state: State, *args: Any, **options: Any) -> int:
        return await self._call("purge", 1, partial(self.core.purge, queue, state, *args, **options))  # type: ignore[no-any-return]


class SimConnections(Connections):
    """Gives a process connections to the simulated store, each recorded."""

    def __init__(self, server: Server, process: Process, clock: Clock) -> None:
        super().__init__("memory://simulated", clock)
        self._server = server
        self._process = process

    async def open(self) -> Store:
        store = SimStore(self._server, self._process)
        await store._call("connect", 1, _nothing)
        self._process.stores.append(store)
        return cast(Store, Recorded(cast(Store, store), self._process.recorder))


async def _nothing() -> None:
    """What a connect does at the server."""
