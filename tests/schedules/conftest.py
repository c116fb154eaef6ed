"""Lets the tests of this folder share `schedule_env`."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
async def env() -> AsyncIterator[object]:
    from schedule_env import Env

    made = Env()
    async with made.app:
        yield made
