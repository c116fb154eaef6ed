"""A Tarantool for the tests of its storage. Modules that need another have their own `server` or `store`."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer, empty

from accoda import open_storage
from accoda.storage.protocol import Store


@pytest.fixture(scope="module")
def server() -> Iterator[TarantoolServer]:
    with need(TarantoolServer) as server:
        yield server


@pytest_asyncio.fixture
async def store(server: TarantoolServer) -> AsyncIterator[Store]:
    async with await open_storage(server.url) as store:
        await empty(server.url)
        yield store
