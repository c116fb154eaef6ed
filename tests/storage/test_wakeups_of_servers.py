"""A wait on PostgreSQL or Tarantool looks once: then the server tells it of a job, or it knows when one starts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator

import pytest
import pytest_asyncio
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer, empty

from accoda import Store, open_storage
from accoda.model import Done, NewJob
from accoda.storage.common.wakeups import HintedWakeUps, Seen


@pytest.fixture(scope="module", params=["postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "postgres":
        with need(lambda: PostgresServer(durable=False)) as postgres:
            yield postgres.url
    else:
        with need(TarantoolServer) as tarantool:
            yield tarantool.url


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with await open_storage(url) as opened:
        if url.startswith("tarantool"):
            await empty(url)
        for queue, stats in (await opened.stats()).queues.items():
            if stats.paused:
                await opened.pause(queue, 0)
            for state in ("ready", "delayed", "taken"):
                await opened.purge(queue, state)
        yield opened


@pytest_asyncio.fixture
async def producer(url: str, store: Store) -> AsyncIterator[Store]:
    """Another process, as far as the server knows."""
    async with await open_storage(url) as opened:
        yield opened


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[bool]":
    """What each look of a wait has found."""
    found: asyncio.Queue[bool] = asyncio.Queue()
    real = HintedWakeUps.wait_for_hints

    async def wait_for_hints(
        wakeups: HintedWakeUps, queues: Collection[str], timeout: float, look: Callable[[], Awaitable[Seen]]
    ) -> bool:
        async def noting() -> Seen:
            seen = await look()
            found.put_nowait(seen.takable)
            return seen

        return await real(wakeups, queues, timeout, noting)

    monkeypatch.setattr(HintedWakeUps, "wait_for_hints", wait_for_hints)
    return found


async def sleep(store: Store, looks: "asyncio.Queue[bool]") -> "asyncio.Task[bool]":
    """A wait that has looked. (The first look of a storage may be followed by one more: it listens now.)"""
    assert not await store.wait(["q"], 0.05)
    while not looks.empty():
        looks.get_nowait()
    waiting = asyncio.create_task(store.wait(["q"], 30))
    assert not await looks.get()
    return waiting


async def test_a_wait_that_is_told_of_a_job_ends_without_another_look(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    waiting = await sleep(store, looks)
    await producer.enqueue([NewJob("q", b"x")])
    assert await waiting
    assert looks.empty()
    assert [job.data for job in await store.take("q", 1)] == [b"x"]


async def test_a_wait_that_knows_when_a_job_starts_ends_then_without_another_look(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    await producer.enqueue([NewJob("q", b"x", delay=0.3)])
    waiting = await sleep(store, looks)
    assert await waiting
    assert looks.empty()
    assert [job.data for job in await store.take("q", 1)] == [b"x"]


async def test_a_wait_looks_again_when_something_else_happens_in_the_queue(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    (answer,) = await producer.enqueue([NewJob("q", b"x", delay=0.3, key="k")])
    waiting = await sleep(store, looks)
    await producer.enqueue([NewJob("q", b"later", delay=0.6, key="k", on_duplicate="replace")])
    assert not await looks.get()
    assert await waiting
    (job,) = await store.take("q", 1)
    assert (job.id, job.data) == (answer.id, b"later")


async def test_a_job_that_is_only_delayed_does_not_end_a_wait(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    waiting = await sleep(store, looks)
    await producer.enqueue([NewJob("q", delay=900)])
    assert not await looks.get()
    assert not waiting.done()
    waiting.cancel()


async def test_a_job_in_a_paused_queue_does_not_end_a_wait(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    await producer.pause("q", None)
    waiting = await sleep(store, looks)
    await producer.enqueue([NewJob("q")])
    assert not await looks.get()
    assert not waiting.done()
    await producer.pause("q", 0)
    assert await waiting


async def test_a_lease_that_was_settled_does_not_end_a_wait_when_it_would_have_ended(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    await producer.enqueue([NewJob("q")])
    (job,) = await producer.take("q", 1, lease=0.3)
    waiting = await sleep(store, looks)
    assert await producer.settle([Done(job.lease)]) == []
    assert not await looks.get()
    assert not waiting.done()
    waiting.cancel()
