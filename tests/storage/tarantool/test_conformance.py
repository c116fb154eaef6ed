"""The conformance suite and the random machine on a real Tarantool server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer, empty

from accoda import open_storage
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.store_fixture import ManualStoreFixture, StoreFixture


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
async def make_fixture() -> AsyncIterator[StoreFixture]:
    url = server().url
    async with await open_storage(url):  # installs the application
        await empty(url)
    yield ManualStoreFixture(lambda clock: open_storage(url, clock=clock), url=url, shared=True)


@pytest_asyncio.fixture
async def fixture() -> AsyncIterator[StoreFixture]:
    async with make_fixture() as fixture:
        yield fixture


TestMachine = machine_for(make_fixture, examples=25)
