"""A Redis for the tests of its storage, and a Cluster. Modules that need others have their own `server`."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer

from accoda import ManualClock, open_storage
from accoda.storage.protocol import Store


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with need(RedisServer) as server:
        yield server


@pytest.fixture(scope="module")
def servers() -> Iterator[ClusterSet]:
    with need(ClusterSet) as servers:
        yield servers


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def store(server: RedisServer, clock: ManualClock) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url, clock=clock) as store:
        yield store


@pytest_asyncio.fixture
async def other(server: RedisServer, clock: ManualClock) -> AsyncIterator[Store]:
    async with await open_storage(server.url, clock=clock) as store:
        yield store
