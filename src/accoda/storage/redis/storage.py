"""`Store` on Redis. The verbs of the hot path are in jobs.py; each of the others is a step of a module beside it."""

from __future__ import annotations

from collections.abc import Sequence

from accoda.clock import Clock
from accoda.model import (
    Change,
    Cursor,
    Document,
    JobInfo,
    Lanes,
    LanesInfo,
    Look,
    Order,
    State,
    Stats,
    Target,
    check_document_name,
)
from accoda.storage import checks
from accoda.storage.redis.client import Client
from accoda.storage.redis.documents import Documents
from accoda.storage.redis.eviction import EvictionWatch
from accoda.storage.redis.inspector import Inspector
from accoda.storage.redis.jobs import JobVerbs
from accoda.storage.redis.keys import Keys
from accoda.storage.redis.shards import Shards
from accoda.storage.redis.wakeups import Waiting


class RedisStorage(JobVerbs):
    """Safe to share between threads and event loops; other processes open their own."""

    def __init__(self, keys: Keys, client: Client, clock: Clock | None, partitions: int) -> None:
        super().__init__(keys, client, Shards(keys, client, partitions))
        self._inspector = Inspector(keys, client, self._shards, self._outbox)
        self._documents = Documents(keys, client)
        self._waiting = Waiting(keys, client, self._shards, self._outbox, clock)
        self.eviction = EvictionWatch(client)

    async def close(self) -> None:
        if not self._affinity.closed:
            await self._affinity.run(self._close())

    async def _close(self) -> None:
        self._affinity.closed = True
        await self._finish()
        self._client.closed = True
        await self._outbox.close()
        await self.eviction.close()
        await self._waiting.close()
        for connection in self._client.topology.close():
            await connection.wait_closed()
        await self._finish()  # calls that waited for a lost server learn now that it is over

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        checks.check_wait(queues, timeout)
        return await self._affinity.run(self._waiting.wait(queues, timeout))

    async def stats(self) -> Stats:
        return await self._affinity.run(self._inspector.stats())

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        return await self._affinity.run(self._documents.read(name))

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        checks.check_write(name, value, version, ttl)
        return await self._affinity.run(self._documents.write(name, value, version, ttl))

    async def documents(self, prefix: str) -> list[Document]:
        checks.check_prefix(prefix)
        return await self._affinity.run(self._documents.documents(prefix))

    # -- for people, demand and flows

    async def look(self, target: Target, *, waiters_after: int | None = None, ahead: bool = False) -> Look:
        checks.check_look(target, waiters_after)
        return await self._affinity.run(self._inspector.look(target, waiters_after, ahead))

    async def change(self, changes: Sequence[Change]) -> int:
        checks.check_changes(changes)
        return await self._affinity.run(self._inspector.change(changes))

    async def browse(
        self, queue: str, state: State, *, order: Order = "line", after: Cursor | None = None, limit: int = 100
    ) -> list[JobInfo]:
        checks.check_browse(queue, state, order, after, limit)
        return await self._affinity.run(self._inspector.browse(queue, state, order, after, limit))

    async def pause(self, queue: str, until: int | None) -> None:
        checks.check_pause(queue, until)
        await self._affinity.run(self._inspector.pause(queue, until))

    async def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        checks.check_set_lanes(queue, rules)
        await self._affinity.run(self._lanes.set_lanes(queue, rules))

    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        checks.check_lanes(queue, limit)
        return await self._affinity.run(self._lanes.lanes(queue, limit))

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        checks.check_purge(queue, state, before, limit)
        return await self._affinity.run(self._inspector.purge(queue, state, before, limit))
