"""A private server for each storage, and a fresh store on it for each measurement."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from accoda.testing.servers.postgres import PostgresServer
from accoda.testing.servers.redis import RedisServer


@dataclass(frozen=True)
class Place:
    """Where stores are made. `fresh` gives the URL of an empty one; `settled` is called between fill and work."""

    about: str
    fresh: Callable[[], str]
    settled: Callable[[str], None]


@contextmanager
def redis() -> Iterator[Place]:
    """No persistence, which is how peers are usually measured; the same for everybody."""
    with RedisServer() as server:

        def fresh() -> str:
            server.ask("FLUSHALL")
            return server.url

        version = next(line for line in server.ask("INFO", "server").splitlines() if line.startswith("redis_version"))
        yield Place(f"Redis {version.partition(':')[2]}, no persistence", fresh, lambda url: None)


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

        version = _ask(server.url, "SHOW server_version").split()[0]
        yield Place(f"PostgreSQL {version}, fsync on", fresh, settled)


@contextmanager
def sqlite() -> Iterator[Place]:
    """A file in a new folder for each measurement. Every peer brings the SQLite of its own driver."""
    with tempfile.TemporaryDirectory(prefix="accoda-peers-") as folder:
        numbers = itertools.count(1)

        def fresh() -> str:
            place = Path(folder) / str(next(numbers))
            place.mkdir()
            return f"sqlite:///{place}/jobs.db"

        yield Place(f"SQLite (Python's is {sqlite3.sqlite_version})", fresh, lambda url: None)


PLACES: dict[str, Callable[[], AbstractContextManager[Place]]] = {
    "redis": redis,
    "postgres": postgres,
    "sqlite": sqlite,
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
