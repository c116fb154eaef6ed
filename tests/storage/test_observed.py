"""A wrapped storage behaves like the storage, and every call is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from accoda import Clock, Done, InvalidInput, NewJob, Store, open_storage
from accoda.model import ById, Head, Remove
from accoda.storage.observed import Call, Observed, Tally, observe
from accoda.storage.protocol import VERBS
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.machine import machine_for
from accoda.testing.store_fixture import ManualStoreFixture, StoreFixture


@asynccontextmanager
async def make_fixture() -> AsyncIterator[StoreFixture]:
    async def open_observed(clock: Clock) -> Store:
        return observe(await open_storage("memory://", clock=clock), Tally())

    yield ManualStoreFixture(open_observed, url="memory://", shared=False)


@pytest_asyncio.fixture
async def fixture() -> AsyncIterator[StoreFixture]:
    async with make_fixture() as fixture:
        yield fixture


TestMachine = machine_for(make_fixture, examples=10)


async def test_every_call_is_told_with_its_queue_size_and_time() -> None:
    calls: list[Call] = []
    async with observe(await open_storage("memory://"), calls.append) as store:
        (id, _) = [answer.id for answer in await store.enqueue([NewJob("q"), NewJob("q")])]
        jobs = await store.take("q", 5)
        await store.settle([Done(job.lease) for job in jobs])
        await store.look(Head("q"), ahead=True)
        await store.look(ById(id))
        await store.change([Remove(id, queue="q"), Remove(id)])
        await store.change([Remove(id)])
        await store.browse("q", "ready", limit=7)
        await store.pause("q", None)
        await store.write("a", b"")
        await store.wait(["a", "b"], 0)
        await store.stats()
    assert [(call.verb, call.queue, call.size) for call in calls] == [
        ("enqueue", "q", 2),
        ("take", "q", 5),
        ("settle", "q", 2),
        ("look", "q", 1),
        ("look", "", 1),
        ("change", "q", 2),
        ("change", "", 1),
        ("browse", "q", 1),
        ("pause", "q", 1),
        ("write", "", 1),
        ("wait", "", 2),
        ("stats", "", 0),
        ("close", "", 0),
    ]
    assert all(call.seconds > 0 and call.error is None for call in calls)


async def test_an_error_is_told_and_passed_on() -> None:
    tally = Tally()
    async with observe(await open_storage("memory://"), tally) as store:
        with pytest.raises(InvalidInput):
            await store.take("q", -1)
    assert (tally.totals["take"].calls, tally.totals["take"].errors) == (1, 1)


def test_no_verb_of_the_protocol_is_forgotten() -> None:
    assert all(callable(getattr(Observed, verb)) for verb in VERBS)
