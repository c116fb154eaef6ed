"""The suite on broken storages. Run by test_mutants.py; no part of a normal run.

Each test runs on the mutants that it is said to catch; with `ACCODA_MUTANT`, all tests run on the one that it names,
"" and "sqlite" being storages as they should be.
"""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from proof.mutants import MUTANTS, mutant_fixture

from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.store_fixture import StoreFixture

ONE = os.environ.get("ACCODA_MUTANT")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if ONE is None and metafunc.cls is not None and "fixture" in metafunc.fixturenames:
        test = f"{metafunc.cls.__name__}::{metafunc.function.__name__}"
        caught = [name for name, mutant in MUTANTS.items() if mutant.caught_by == test]
        metafunc.parametrize("fixture", caught, indirect=True)


@pytest_asyncio.fixture
async def fixture(request: pytest.FixtureRequest) -> AsyncIterator[StoreFixture]:
    mutant = request.param if ONE is None else ONE
    request.node.user_properties.append(("mutant", mutant))  # for the report
    async with mutant_fixture(mutant) as fixture:
        yield fixture
