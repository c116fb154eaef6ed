"""A storage among event loops, and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from proof.servers.redis import RedisServer

from accoda import ManualClock, NewJob, open_storage
from accoda.errors import StorageClosed
from accoda.storage.protocol import Store
from accoda.storage.redis.storage import RedisStorage

Q = "q"


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url) as store:
        yield store


class TestAnotherEventLoop:
    async def test_sends_its_calls_to_that_of_the_storage(self, store: Store) -> None:
        await asyncio.to_thread(lambda: asyncio.run(store.enqueue([NewJob(Q)])))
        assert (await store.stats()).queues[Q].ready == 1

    def test_is_told_when_that_of_the_storage_has_ended(self, server: RedisServer) -> None:
        async def opened() -> Store:
            store = await open_storage(server.url)
            assert isinstance(store, RedisStorage)
            for connection in store._client.topology.close():
                await connection.wait_closed()
            return store

        store = asyncio.run(opened())
        with pytest.raises(StorageClosed, match="event loop"):
            asyncio.run(store.stats())


async def test_the_clock_of_a_test_is_the_servers_time(server: RedisServer) -> None:
    server.ask("FLUSHALL")
    clock = ManualClock(1_000)
    async with await open_storage(server.url, clock=clock) as store:
        await store.enqueue([NewJob(Q)])
        assert (await store.take(Q, 1))[0].created_at == 1_000
