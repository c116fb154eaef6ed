"""The way of one job from an idle producer to an idle worker, as short as it can be with Accoda's scripts and promises.

A worker hears of a job, takes it, runs it and ends it; then it takes until nothing is left, and listens again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

import asyncpg  # type: ignore[import-untyped]

from accoda.storage.postgres.connection import SESSION
from accoda.storage.sqlite.watch import Watch, shared_file
from benchmarks.raw.local import RawSqlite
from benchmarks.raw.postgres import ENQUEUE, SETTLE, TAKE, leases_of, new_job, settle_arguments
from benchmarks.raw.redis import RawRedis
from benchmarks.raw.tarantool import RawTarantool

Ran = Callable[[bytes], None]
BATCH = 100


class Way(Protocol):
    """One end of it: the producer's or the worker's."""

    async def put(self, data: bytes) -> None: ...

    async def work(self, ran: Ran) -> None:
        """For ever; `ran` is called with the data of each job."""


class PostgresWay:
    def __init__(self, url: str, queue: str, connection: Any) -> None:
        self._url = url
        self._queue = queue
        self._connection = connection

    @classmethod
    async def open(cls, url: str, queue: str) -> Self:
        return cls(url, queue, await _connect(url))

    async def put(self, data: bytes) -> None:
        await self._connection.fetch(ENQUEUE, None, [new_job(self._queue, data, cost=1)], False, [f"+{self._queue}"])

    async def work(self, ran: Ran) -> None:
        rung = asyncio.Event()
        listening = await _connect(self._url)
        await listening.add_listener("accoda", lambda *_: rung.set())
        fetch = self._connection.fetch
        while True:
            rung.clear()  # before the take: a job that comes after it rings again
            rows = await fetch(TAKE, None, self._queue, BATCH, 60_000, None, "")
            for row in rows:
                ran(row[1])
            if rows:
                await fetch(SETTLE, *settle_arguments(self._queue, leases_of(rows)))
            else:
                await rung.wait()


async def _connect(url: str) -> Any:
    return await asyncpg.connect(url, server_settings=SESSION)


class RedisWay:
    """Blocks: nothing else runs in its process."""

    def __init__(self, port: int, queue: str) -> None:
        self._raw = RawRedis(port, queue, 1)
        self._port = port

    async def put(self, data: bytes) -> None:
        self._raw.put(data)

    async def work(self, ran: Ran) -> None:
        wire = socket.create_connection(("127.0.0.1", self._port))
        wire.sendall(f"SUBSCRIBE {self._raw.base}:wake\r\n".encode())
        wire.recv(1 << 16)  # that it is subscribed
        while True:
            while leases := await self._raw.take(BATCH):
                for record in self._raw.records:
                    ran(record.split(b"\0", 4)[4])
                await self._raw.settle(leases)
            wire.recv(1 << 16)  # a job came; what came since the take lies in the socket


class SqliteWay:
    """Hears of a commit as Accoda does: the file beside the database is touched, and the kernel tells."""

    def __init__(self, path: Path) -> None:
        self._raw = RawSqlite(path, 1)
        self._path = path

    async def put(self, data: bytes) -> None:
        self._raw.put([data])
        os.utime(shared_file(self._path))

    async def work(self, ran: Ran) -> None:
        rung = asyncio.Event()
        with Watch(self._path, rung.set).listening():
            while True:
                rung.clear()  # before the take: a job that comes after it rings again
                if leases := await self._raw.take(BATCH):
                    for data in self._raw.records:
                        ran(data)
                    await self._raw.settle(leases)
                else:
                    await rung.wait()


class TarantoolWay:
    """Blocks: the server holds its long poll until there is a job."""

    def __init__(self, url: str, queue: str) -> None:
        self._raw = RawTarantool(url, queue, 1)

    async def put(self, data: bytes) -> None:
        self._raw.put(data)

    async def work(self, ran: Ran) -> None:
        seen: int | None = None
        while True:
            # The count before the take: what happens after it is news to the long poll.
            seen = self._raw.listen(seen, 0.0)
            while leases := await self._raw.take(BATCH):
                for data in self._raw.records:
                    ran(data)
                await self._raw.settle(leases)
            self._raw.listen(seen, 30.0)
