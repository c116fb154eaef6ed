"""The storages that are measured: how each is started, and what its bare engine is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from proof.servers.postgres import PostgresServer
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

from accoda import open_storage
from benchmarks.measure import Side
from benchmarks.raw.local import RawHeap, RawSqlite
from benchmarks.raw.postgres import RawPostgres
from benchmarks.raw.redis import RawRedis
from benchmarks.raw.shape import Raw
from benchmarks.raw.tarantool import RawTarantool


@dataclass(frozen=True)
class Engine:
    """A storage with a place to be in. `url` is None where no other process can open it."""

    name: str
    url: str | None
    open_raw: Callable[[str, int], Awaitable[Raw]]

    async def side(self, waiting: int, levels: int, progress: Callable[[str], None]) -> Side:
        """A store and a bare engine, each with that many jobs in a queue of its own."""
        queue = f"q{waiting}-{levels}"
        store = await open_storage(self.url or "memory://")
        side = Side(waiting, levels, queue, store, await self.open_raw(f"raw-{queue}", levels))
        await side.fill(progress)
        return side


@asynccontextmanager
async def memory() -> AsyncIterator[Engine]:
    async def open_raw(queue: str, levels: int) -> Raw:
        return RawHeap(levels)

    yield Engine("memory", None, open_raw)


@asynccontextmanager
async def sqlite() -> AsyncIterator[Engine]:
    with TemporaryDirectory(prefix="accoda-bench-") as folder:

        async def open_raw(queue: str, levels: int) -> Raw:
            return RawSqlite(Path(folder) / f"{queue}.db", levels)

        yield Engine("sqlite", f"sqlite:///{folder}/accoda.db", open_raw)


@asynccontextmanager
async def redis() -> AsyncIterator[Engine]:
    with RedisServer() as server:

        async def open_raw(queue: str, levels: int) -> Raw:
            return RawRedis(server.port, queue, levels)

        yield Engine("redis", server.url, open_raw)


@asynccontextmanager
async def postgres() -> AsyncIterator[Engine]:
    with PostgresServer() as server:

        async def open_raw(queue: str, levels: int) -> Raw:
            return await RawPostgres.open(server.url, queue, levels)

        yield Engine("postgres", server.url, open_raw)


@asynccontextmanager
async def tarantool() -> AsyncIterator[Engine]:
    with TarantoolServer("fsync", memory=4 << 30) as server:

        async def open_raw(queue: str, levels: int) -> Raw:
            return RawTarantool(server.url, queue, levels)

        yield Engine("tarantool", server.url, open_raw)


ENGINES = {"memory": memory, "sqlite": sqlite, "redis": redis, "postgres": postgres, "tarantool": tarantool}
