"""Random flows are what a model says that they must be, on every storage, whatever happens to them."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proof.flows.driver import Driver

from accoda import open_storage
from accoda.storage.protocol import Store

EXAMPLES = int(os.environ.get("ACCODA_EXAMPLES", 40))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def store(url: str, runner: asyncio.Runner) -> Iterator[Store]:
    store = runner.run(open_storage(url))
    yield store
    runner.run(store.close())


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), nodes=st.integers(1, 40), steps=st.integers(1, 40))
def test_flows_are_what_the_model_says(store: Store, runner: asyncio.Runner, seed: int, nodes: int, steps: int) -> None:
    async def play() -> None:
        driver = Driver(store, seed, nodes)
        await driver.clear()
        await driver.play(steps)
        await driver.finish()
        await driver.agree()

    runner.run(play())
