"""A wrapped storage behaves like the storage, and every call is told."""

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from accoda import Clock, Done, InvalidInput, NewJob, Store, open_storage
from accoda.storage.observed import Call, Observed, Tally
from accoda.storage.protocol import Inspector, Storage
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.world import ManualWorld, World


@asynccontextmanager
async def make_world() -> AsyncIterator[World]:
    async def open_observed(clock: Clock) -> Store:
        return Observed(await open_storage("memory://", clock=clock), Tally())

    yield ManualWorld(open_observed, url="memory://", shared=False)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with make_world() as world:
        yield world


TestMachine = machine_for(make_world, examples=10)


async def test_every_call_is_told_with_its_size_and_time() -> None:
    calls: list[Call] = []
    async with Observed(await open_storage("memory://"), calls.append) as store:
        await store.enqueue([NewJob("q"), NewJob("q")])
        jobs = await store.take("q", 5)
        await store.settle([Done(job.lease) for job in jobs])
    assert [(call.verb, call.queue, call.size) for call in calls] == [
        ("enqueue", "q", 2),
        ("take", "q", 5),
        ("settle", "", 2),
        ("close", "", 0),
    ]
    assert all(call.seconds > 0 and call.error is None for call in calls)


async def test_an_error_is_told_and_passed_on() -> None:
    tally = Tally()
    async with Observed(await open_storage("memory://"), tally) as store:
        with pytest.raises(InvalidInput):
            await store.take("q", -1)
    assert (tally.totals["take"].calls, tally.totals["take"].errors) == (1, 1)


def test_no_verb_of_the_protocol_is_forgotten() -> None:
    verbs = {name for kind in (Storage, Inspector) for name in vars(kind) if not name.startswith("_")}
    assert verbs <= {name for name, value in vars(Observed).items() if inspect.iscoroutinefunction(value)}
