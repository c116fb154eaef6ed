"""The conformance suite and the random machine on a Redis Cluster."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisFixtures

from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.store_fixture import StoreFixture

FIXTURES = RedisFixtures(lambda: need(lambda: ClusterSet().start()))


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with FIXTURES.running():
        yield


@pytest_asyncio.fixture
async def fixture() -> AsyncIterator[StoreFixture]:
    async with FIXTURES.make() as fixture:
        yield fixture


TestMachine = machine_for(FIXTURES.make, examples=20)
