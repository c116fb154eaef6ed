"""Lets the tests of this folder share `schedule_world`."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
async def world() -> AsyncIterator[object]:
    from schedule_world import World

    made = World()
    async with made.app:
        yield made
