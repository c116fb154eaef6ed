"""The storages that are measured, each on a private server or in a folder of its own, gone in the end.

Redis runs with `appendfsync everysec`, which its page advises where a power cut may cost a second; PostgreSQL and
SQLite sync each commit.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from proof.servers.postgres import PostgresServer
from proof.servers.process import Process
from proof.servers.redis import RedisServer

from benchmarks.scale.usage import children, written_bytes

PATIENCE = 300.0
"""Seconds that a server may need to come up: ten million jobs take longer to load than a test server is given."""


class Place:
    """Where one store is. Used with `with`; leaving it removes everything."""

    name: str
    about: str
    url: str
    port = 0
    in_memory = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def servers(self) -> list[int]:
        """The server's processes; none where the store is in the client."""
        return []

    async def size(self) -> int:
        """Bytes that the store takes: memory on Redis, disk elsewhere."""
        raise NotImplementedError

    async def written(self) -> int:
        """Bytes that the store has given to the disk so far."""
        return written_bytes(self.servers() or [os.getpid()])

    async def tidy(self) -> None:
        """After a load: what a server in service has done long ago (statistics, checkpoint)."""

    def restart(self) -> None:
        """Stop and start the server; nothing where there is none."""


class SqlitePlace(Place):
    name = "sqlite"
    about = "SQLite, each commit synced"

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="accoda-scale-")
        self.file = Path(self._folder.name) / "jobs.db"
        self.url = f"sqlite:///{self.file}"
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    async def size(self) -> int:
        import apsw

        connection = apsw.Connection(str(self.file))
        connection.pragma("wal_checkpoint(TRUNCATE)")
        connection.close()
        return sum(file.stat().st_size for file in self.file.parent.iterdir())


class RedisPlace(Place):
    name = "redis"
    about = "Redis, appendfsync everysec"
    in_memory = True

    def __enter__(self) -> Self:
        self._server = RedisServer("everysec").start()
        self.url, self.port = self._server.url, self._server.port
        self._empty = self.used()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()

    def servers(self) -> list[int]:
        return [self._server.pid]

    def used(self) -> int:
        return _number(self._server, "memory", "used_memory")

    async def size(self) -> int:
        return self.used() - self._empty

    async def tidy(self) -> None:
        """Wait until the append-only file is not being rewritten: a fork slows the server for that time."""
        await asyncio.to_thread(self._wait_for_rewrite)

    def _wait_for_rewrite(self) -> None:
        end = time.monotonic() + PATIENCE
        names = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
        while time.monotonic() < end and any(_number(self._server, "persistence", name) for name in names):
            time.sleep(0.2)

    def restart(self) -> None:
        self._server.stop()
        start_patiently(self._server)


class PostgresPlace(Place):
    name = "postgres"
    about = "PostgreSQL, fsync on"

    def __enter__(self) -> Self:
        self._server = PostgresServer().start()
        self.url, self.port = self._server.url, self._server.port
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()

    def servers(self) -> list[int]:
        return [self._server.pid, *children(self._server.pid)]

    async def size(self) -> int:
        return int(await self._ask("SELECT pg_database_size(current_database())"))

    async def written(self) -> int:
        """Of its log. The pages of the tables follow at checkpoints, however often a job changed them."""
        return int(await self._ask("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))

    async def tidy(self) -> None:
        await self._ask("VACUUM ANALYZE")
        await self._ask("CHECKPOINT")

    def restart(self) -> None:
        self._server.stop()
        start_patiently(self._server)

    async def _ask(self, query: str) -> Any:
        import asyncpg  # type: ignore[import-untyped]

        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetchval(query, timeout=PATIENCE)
        finally:
            await connection.close()


PLACES: dict[str, type[Place]] = {"sqlite": SqlitePlace, "redis": RedisPlace, "postgres": PostgresPlace}


def start_patiently(server: Process) -> None:
    """Start it, however long it reads its data."""
    end = time.monotonic() + PATIENCE
    try:
        server.start()
    except TimeoutError:
        while not server.is_up():
            if time.monotonic() > end or not server.is_alive:
                raise
            time.sleep(0.02)


def _number(server: RedisServer, section: str, name: str) -> int:
    lines = str(server.ask("INFO", section)).splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith(f"{name}:"))
