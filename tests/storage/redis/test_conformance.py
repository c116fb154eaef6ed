"""The conformance suite and the random machine on one Redis server."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.redis import RedisFixtures, RedisServer

from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.store_fixture import StoreFixture

FIXTURES = RedisFixtures(lambda: need(lambda: RedisServer().start()))


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with FIXTURES.running():
        yield


@pytest_asyncio.fixture
async def fixture() -> AsyncIterator[StoreFixture]:
    async with FIXTURES.make() as fixture:
        yield fixture


TestMachine = machine_for(FIXTURES.make)
