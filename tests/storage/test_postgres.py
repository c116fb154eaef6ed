"""The conformance suite and the random machine on PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import pytest_asyncio

from accoda import open_storage
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.servers.postgres import PostgresServer
from accoda.testing.servers.pytest import need
from accoda.testing.world import ManualWorld, World

EMPTY = """
TRUNCATE accoda.jobs, accoda.waiters, accoda.pauses, accoda.counts, accoda.documents;
ALTER SEQUENCE accoda.job_ids RESTART;
UPDATE accoda.forgotten_documents SET version = 0;
"""
_running: list[PostgresServer] = []


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with need(lambda: PostgresServer(durable=False, settings=["synchronous_commit=off"])) as running:
        _running.append(running)
        yield
        _running.remove(running)


@asynccontextmanager
async def make_world() -> AsyncIterator[World]:
    """The tables, emptied: that takes a fraction of the time of new ones."""
    server = _running[0]
    connection = await asyncpg.connect(server.url)
    try:
        if await connection.fetchval("SELECT to_regclass('accoda.jobs')"):
            await connection.execute(EMPTY)
    finally:
        await connection.close()
    yield ManualWorld(lambda clock: open_storage(server.url, clock=clock), url=server.url, shared=True)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with make_world() as world:
        yield world


TestMachine = machine_for(make_world)
