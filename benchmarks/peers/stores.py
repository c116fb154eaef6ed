"""A private server for each storage, and a fresh store on it for each measurement."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import apsw
from proof.servers.postgres import PostgresServer
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer, administer

from benchmarks.peers.processes import family, processor_seconds

S = TypeVar("S")


@dataclass(frozen=True)
class Place:
    """Where stores are made. `fresh` gives the URL of an empty one; `settled` is called between fill and work.

    `size` is how many bytes a store holds, `server` gives the process that serves it, with its children, or none.
    """

    about: str
    fresh: Callable[[], str]
    settled: Callable[[str], None]
    size: Callable[[str], int]
    server: Callable[[], int] | None = None

    def processor_seconds(self) -> float | None:
        """What the server has used so far."""
        return processor_seconds(family(self.server())) if self.server is not None else 0.0


@dataclass(frozen=True)
class Bench(Generic[S]):
    """A place to measure at, and how much."""

    place: Place
    sample: S


@contextmanager
def redis() -> Iterator[Place]:
    """No persistence, which is how peers are usually measured; the same for all."""
    with RedisServer() as server:

        def fresh() -> str:
            server.ask("FLUSHALL")
            return server.url

        def ask_info(section: str, name: str) -> str:
            lines = server.ask("INFO", section).splitlines()
            return str(next(line for line in lines if line.startswith(f"{name}:")).partition(":")[2])

        about = f"Redis {ask_info('server', 'redis_version')}, no persistence"
        yield Place(
            about, fresh, lambda url: None, lambda url: int(ask_info("memory", "used_memory")), lambda: server.pid
        )


@contextmanager
def postgres() -> Iterator[Place]:
    """fsync is on, everything else as PostgreSQL comes. Each measurement has a database of its own."""
    with PostgresServer() as server:
        names = (f"drain_{number}" for number in itertools.count(1))
        made: list[str] = []

        def fresh() -> str:
            for name in made:
                _ask(server.url, f"DROP DATABASE {name} WITH (FORCE)")
            made[:] = [next(names)]
            _ask(server.url, f"CREATE DATABASE {made[0]}")
            return urlsplit(server.url)._replace(path=f"/{made[0]}").geturl()

        def settled(url: str) -> None:
            """A table that grew from nothing in a second has no statistics; in service it would have them."""
            _ask(url, "VACUUM ANALYZE")
            _ask(url, "CHECKPOINT")

        def size(url: str) -> int:
            return int(_ask(url, "SELECT pg_database_size(current_database())"))

        version = _ask(server.url, "SHOW server_version").split()[0]
        yield Place(f"PostgreSQL {version}, fsync on", fresh, settled, size, lambda: server.pid)


@contextmanager
def sqlite() -> Iterator[Place]:
    """A file in a new folder for each measurement. Every peer brings the SQLite of its own driver."""
    with tempfile.TemporaryDirectory(prefix="accoda-peers-") as folder:
        numbers = itertools.count(1)

        def fresh() -> str:
            for old in Path(folder).iterdir():
                shutil.rmtree(old, ignore_errors=True)
            place = Path(folder) / str(next(numbers))
            place.mkdir()
            return f"sqlite:///{place}/jobs.db"

        def size(url: str) -> int:
            path = Path(url.removeprefix("sqlite:///"))
            apsw.Connection(str(path)).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return sum(each.stat().st_size for each in path.parent.iterdir())

        about = f"SQLite (Python's is {sqlite3.sqlite_version}, Accoda's {apsw.sqlite_lib_version()})"
        yield Place(about, fresh, lambda url: None, size)


_TARANTOOL_BYTES = """
local bytes = 0
for id, space in pairs(box.space) do -- each is there by its number and by its name, and so is each index
    if type(id) == 'number' and space.name ~= 'accoda_ballast' then
        bytes = bytes + space:bsize()
        for number, index in pairs(space.index) do
            bytes = bytes + (type(number) == 'number' and index:bsize() or 0)
        end
    end
end
return bytes
"""
"""Of tuples and indexes. What the server has asked the system for comes in pieces of megabytes; the ballast is memory
that is kept free for workers, however many jobs there are."""


@contextmanager
def tarantool() -> Iterator[Place]:
    """Its log is written and not synced, which is its default. Each measurement has a server of its own."""
    with ExitStack() as running:
        servers: list[TarantoolServer] = []

        def fresh() -> str:
            running.pop_all().close()
            servers[:] = [running.enter_context(TarantoolServer(memory=1 << 30))]
            return servers[0].url

        def size(url: str) -> int:
            return int(asyncio.run(administer(url, _TARANTOOL_BYTES)))

        version = asyncio.run(administer(fresh(), "return _TARANTOOL")).partition("-")[0]
        yield Place(f"Tarantool {version}, wal_mode write", fresh, lambda url: None, size, lambda: servers[0].pid)


@contextmanager
def memory() -> Iterator[Place]:
    """Each process that opens it has a store of its own."""
    yield Place("Memory of the worker's process", lambda: "memory://", lambda url: None, lambda url: 0)


PLACES: dict[str, Callable[[], AbstractContextManager[Place]]] = {
    "redis": redis,
    "postgres": postgres,
    "sqlite": sqlite,
    "tarantool": tarantool,
    "memory": memory,
}


def _ask(url: str, query: str) -> Any:
    """Run one statement outside a transaction and give its first value."""

    async def run() -> Any:
        import asyncpg  # type: ignore[import-untyped]

        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(run())
