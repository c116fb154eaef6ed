"""The conformance suite and the random machine on the memory storage."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest_asyncio

from accoda import open_storage
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.world import ManualWorld, World


@asynccontextmanager
async def make_world() -> AsyncIterator[World]:
    yield ManualWorld(lambda clock: open_storage("memory://", clock=clock), url="memory://", shared=False)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with make_world() as world:
        yield world


TestMachine = machine_for(make_world)
