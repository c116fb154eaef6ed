"""The conformance suite and the random machine on Redis with Sentinel."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import SentinelSet, Worlds
from accoda.testing.world import World

WORLDS = Worlds(lambda: need(lambda: SentinelSet().start()))


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with WORLDS.running():
        yield


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with WORLDS.make() as world:
        yield world


# The verbs are those of one server, which has the usual number of runs.
TestMachine = machine_for(WORLDS.make, examples=15)
