"""An app in memory whose clock the tests move."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from accoda import App, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def app(clock: ManualClock) -> AsyncIterator[App]:
    async with App("memory://", clock=clock) as app:
        yield app
