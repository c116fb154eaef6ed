"""The conformance suite and the random machine on the SQLite storage."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

import pytest_asyncio

from accoda import open_storage
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.store_fixture import ManualStoreFixture, StoreFixture


@asynccontextmanager
async def make_fixture() -> AsyncIterator[StoreFixture]:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/jobs.db"
        yield ManualStoreFixture(lambda clock: open_storage(url, clock=clock), url=url, shared=True)


@pytest_asyncio.fixture
async def fixture() -> AsyncIterator[StoreFixture]:
    async with make_fixture() as fixture:
        yield fixture


TestMachine = machine_for(make_fixture)
