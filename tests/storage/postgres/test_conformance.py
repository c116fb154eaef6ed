"""The conformance suite and the random machine on PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import pytest_asyncio
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need

from accoda import open_storage
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.store_fixture import ManualStoreFixture, StoreFixture

EMPTY = """
TRUNCATE accoda.jobs, accoda.waiters, accoda.pauses, accoda.lane_rules, accoda.unbalanced, accoda.counts,
         accoda.documents;
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
async def make_fixture() -> AsyncIterator[StoreFixture]:
    """The tables, emptied: that takes a fraction of the time of new ones."""
    server = _running[0]
    connection = await asyncpg.connect(server.url)
    try:
        if await connection.fetchval("SELECT to_regclass('accoda.jobs')"):
            await connection.execute(EMPTY)
    finally:
        await connection.close()
    yield ManualStoreFixture(lambda clock: open_storage(server.url, clock=clock), url=server.url, shared=True)


@pytest_asyncio.fixture
async def fixture() -> AsyncIterator[StoreFixture]:
    async with make_fixture() as fixture:
        yield fixture


TestMachine = machine_for(make_fixture, examples=20)
