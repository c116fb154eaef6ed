"""What tests of one storage share."""

from collections.abc import AsyncIterator

import asyncpg
import pytest_asyncio

from accoda import open_storage
from accoda.storage.postgres import PostgresStorage
from accoda.testing.servers.postgres import PostgresServer


@pytest_asyncio.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStorage]:
    """Empty, on the `server` of the module, a PostgreSQL. Modules about other storages have a `store` of their own."""
    connection = await asyncpg.connect(server.url)
    await connection.execute("DROP SCHEMA IF EXISTS accoda CASCADE")
    await connection.close()
    async with await open_storage(server.url) as opened:
        assert isinstance(opened, PostgresStorage)
        yield opened
