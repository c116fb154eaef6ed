"""The table of an outbox in an SQLite file, by the standard library's module: the copy of SQLite that its callers use.

SQLite locks files by process, and two copies of it in one process do not know of each other's locks: see
docs/decisions/0002-sqlite.md. So what opens a caller's file is what the caller opens it with.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from accoda.errors import StorageError, StorageUnavailable
from accoda.storage.sqlite.watch import WRITTEN, Watch
from accoda.transactions.outbox import NAME_ROW, outbox_schema
from accoda.transactions.table import Row, checked

T = TypeVar("T")

BUSY = 10.0
"""Seconds for which a statement waits until callers' transactions have ended."""
LOOKS = (0.005, 0.02, 0.1)
"""Seconds after a write of the file at which to look again: the log is written first, and then the commit is seen."""
REST = 0.01
"""Seconds between two looks at least, however often the file is written."""

_READ = """
SELECT id, jobs, max(0, (julianday('now') - 2440587.5) * 86400.0 - written_at / 1000.0) FROM accoda_outbox
WHERE id NOT IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?
"""
_NAME = "SELECT jobs FROM accoda_outbox WHERE id = ?"


class SqliteTable:
    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.name = ""
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accoda-outbox")
        self._changed = asyncio.Event()
        self._timers: list[asyncio.TimerHandle] = []
        self._looked_at = 0.0
        log = path.with_name(path.name + "-wal")
        self._watch = Watch((path, log), self._written, events=WRITTEN)
        self._listening = ExitStack()

    async def begin(self) -> None:
        self.name = await self._run(_name_of, self._connection)  # first: a log that is there from now on is watched too
        self._listening.enter_context(self._watch.listening())

    async def read(self, without: Collection[str], limit: int) -> list[Row]:
        self._changed.clear()  # before the look, so that nothing falls between the two
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._looked_at + REST - loop.time()))
        self._looked_at = loop.time()
        found = await self._execute(_READ, json.dumps(list(without)), limit + 1)
        return checked(self.name, [Row(*each) for each in found])

    async def delete(self, ids: Collection[str]) -> None:
        await self._execute(
            "DELETE FROM accoda_outbox WHERE id IN (SELECT value FROM json_each(?))", json.dumps(list(ids))
        )

    async def wait(self, timeout: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()

    async def count(self) -> int:
        return int((await self._execute("SELECT count(*) - 1 FROM accoda_outbox"))[0][0])

    async def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._listening.close()
        self._watch.close()
        await self._run(self._connection.close)
        self._thread.shutdown()

    def _written(self) -> None:
        self._changed.set()
        loop = asyncio.get_running_loop()
        if not any(timer.when() > loop.time() for timer in self._timers):
            self._timers = [loop.call_later(seconds, self._changed.set) for seconds in LOOKS]

    async def _execute(self, query: str, *values: Any) -> list[Any]:
        def execute() -> list[Any]:
            return self._connection.execute(query, values).fetchall()

        return await self._run(execute)

    async def _run(self, call: Callable[..., T], *args: Any) -> T:
        with _translated():
            return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)


@asynccontextmanager
async def open_sqlite_table(path: Path) -> AsyncIterator[SqliteTable]:
    with _translated():
        table = SqliteTable(_connect(path), path)
    try:
        await table.begin()
        yield table
    finally:
        await asyncio.shield(asyncio.ensure_future(table.close()))


def _connect(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=rw"  # a file that is missing is not made: it would be a new one
    return sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False)


def _name_of(connection: sqlite3.Connection) -> str:
    there = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'accoda_outbox'").fetchone()[0]
    row = connection.execute(_NAME, (NAME_ROW,)).fetchone() if there else None
    if row is None:  # else nothing is written, which would wait until callers' transactions have ended
        connection.executescript(outbox_schema("sqlite"))
        row = connection.execute(_NAME, (NAME_ROW,)).fetchone()
    name: bytes = row[0]
    return name.hex()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StorageUnavailable(f"the file of the outbox cannot be used now: {error}") from error
    except sqlite3.Error as error:
        raise StorageError(f"the outbox: {error}") from error
