"""The suite on the storage that `ACCODA_MUTANT` names. Run by test_mutants.py; no part of a normal run."""

import os
from collections.abc import AsyncIterator

import pytest_asyncio

from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.mutants import mutant_world
from accoda.testing.world import World


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with mutant_world(os.environ["ACCODA_MUTANT"]) as world:
        yield world
