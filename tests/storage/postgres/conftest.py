"""A PostgreSQL for the tests of its storage. Modules that need another have their own `server` and `store`."""

import itertools
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
import pytest_asyncio
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need

from accoda import open_storage
from accoda.storage.postgres import PostgresStorage

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with need(lambda: PostgresServer(durable=False, settings=["synchronous_commit=off"])) as running:
        yield running


@pytest.fixture
def schema() -> str:
    """One that no other test uses."""
    return f"test_{next(_numbers)}"


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    return f"{server.url}?schema={schema}"


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[PostgresStorage]:
    async with await open_storage(url) as opened:
        assert isinstance(opened, PostgresStorage)
        yield opened


@pytest_asyncio.fixture
async def sql(server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.url)
    yield connection
    await connection.close()
