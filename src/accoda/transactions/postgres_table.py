"""The table of an outbox in PostgreSQL. One connection, which also listens for the notifications of new rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from accoda.errors import StorageError, StorageReadOnly, StorageUnavailable
from accoda.storage.postgres.errors import DRIVER, is_lost
from accoda.transactions.outbox import CHANNEL, NAME_ROW, outbox_schema
from accoda.transactions.table import Row, checked

TIMEOUT = 30.0
"""Seconds after which a server that does not answer is given up."""
CLOSING = 2.0

_READ = """
SELECT id::text, jobs, greatest(0, extract(epoch FROM clock_timestamp()) - written_at / 1000.0)::float8
FROM accoda_outbox WHERE NOT id = ANY(CAST($1 AS uuid[])) ORDER BY id LIMIT $2
"""
_NAME = "SELECT jobs FROM accoda_outbox WHERE id = CAST($1 AS uuid)"


class PostgresTable:
    def __init__(self, connection: Any, name: str) -> None:
        self.name = name
        self._connection = connection
        self._changed = asyncio.Event()

    async def listen(self) -> None:
        connection = self._connection
        connection.add_termination_listener(self._wake)  # then the next call says what is wrong
        with _translated():
            await connection.add_listener(CHANNEL, self._wake)

    def _wake(self, *_: object) -> None:
        self._changed.set()

    async def read(self, without: Collection[str], limit: int) -> list[Row]:
        self._changed.clear()  # before the look, so that nothing falls between the two
        with _translated():
            found = await self._connection.fetch(_READ, list(without), limit + 1)
        return checked(self.name, [Row(*each) for each in found])

    async def delete(self, ids: Collection[str]) -> None:
        with _translated():
            await self._connection.execute("DELETE FROM accoda_outbox WHERE id = ANY(CAST($1 AS uuid[]))", list(ids))

    async def wait(self, timeout: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()

    async def count(self) -> int:
        with _translated():
            return int(await self._connection.fetchval("SELECT count(*) - 1 FROM accoda_outbox"))


@asynccontextmanager
async def open_postgres_table(url: str) -> AsyncIterator[PostgresTable]:
    with _translated():
        # No statement stays prepared: PgBouncer may give each transaction another session.
        connection = await asyncpg.connect(url, timeout=10, command_timeout=TIMEOUT, statement_cache_size=0)
    try:
        with _translated():
            table = PostgresTable(connection, await _name_of(connection))
        await table.listen()
        yield table
    finally:
        try:
            await connection.close(timeout=CLOSING)
        except BaseException:
            connection.terminate()
            raise


async def _name_of(connection: Any) -> str:
    there = await connection.fetchval("SELECT to_regclass('accoda_outbox')") is not None
    name = await connection.fetchval(_NAME, NAME_ROW) if there else None
    while name is None:
        # Several workers may make it at the same moment: those that come second find it made.
        with suppress(asyncpg.DuplicateTableError, asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
            await connection.execute(outbox_schema("postgresql"))
        name = await connection.fetchval(_NAME, NAME_ROW)
    return str(name.hex())


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as error:
        raise StorageReadOnly(
            f"the outbox: {error}; create the table with the SQL that accoda.transactions.outbox_schema gives, and "
            "grant the worker's user SELECT and DELETE on it"
        ) from error
    except DRIVER as error:
        if is_lost(error):
            raise StorageUnavailable(f"the database of the outbox does not answer: {error}") from error
        raise StorageError(f"the outbox: {error}") from error
