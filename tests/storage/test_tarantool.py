"""The conformance suite and the random machine on a real Tarantool server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache

import pytest
import pytest_asyncio

from accoda import open_storage
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.servers.pytest import need
from accoda.testing.servers.tarantool import TarantoolServer, empty
from accoda.testing.world import ManualWorld, World


@cache
def server() -> TarantoolServer:
    return need(lambda: TarantoolServer().start())


@pytest.fixture(scope="module", autouse=True)
def stop_the_server() -> Iterator[None]:
    yield
    if server.cache_info().currsize:
        server().close()
        server.cache_clear()


@asynccontextmanager
async def make_world() -> AsyncIterator[World]:
    url = server().url
    async with await open_storage(url):  # installs the application
        await empty(url)
    yield ManualWorld(lambda clock: open_storage(url, clock=clock), url=url, shared=True)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with make_world() as world:
        yield world


TestMachine = machine_for(make_world)
