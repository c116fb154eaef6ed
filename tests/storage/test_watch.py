"""Who sleeps in `wait` of PostgreSQL or Tarantool looks once: then he is told, or knows when a job starts."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from accoda import Store, open_storage
from accoda.model import Done, NewJob
from accoda.testing.servers.postgres import PostgresServer
from accoda.testing.servers.pytest import need
from accoda.testing.servers.tarantool import TarantoolServer, empty


@pytest.fixture(scope="module", params=["postgres", "tarantool"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    start = (lambda: PostgresServer(durable=False)) if request.param == "postgres" else TarantoolServer
    with need(start) as server:
        yield server.url


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with await open_storage(url) as opened:
        if url.startswith("tarantool"):
            await empty(url)
        for queue, stats in (await opened.stats()).queues.items():
            if stats.paused:
                await opened.resume(queue)
            for state in ("ready", "delayed", "taken"):
                await opened.purge(queue, state)  # type: ignore[arg-type]
        yield opened


@pytest_asyncio.fixture
async def producer(url: str, store: Store) -> AsyncIterator[Store]:
    """Another process, as far as the server knows."""
    async with await open_storage(url) as opened:
        yield opened


@pytest.fixture
def looks(store: Store, monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[bool]":
    """What each look of the sleeper has found."""
    found: asyncio.Queue[bool] = asyncio.Queue()
    client: Any = store._client  # type: ignore[attr-defined]
    name = "fetch" if hasattr(client, "fetch") else "call"
    real = getattr(client, name)

    async def noting(verb: str, *args: Any, **kwargs: Any) -> Any:
        answer = await real(verb, *args, **kwargs)
        if verb == "look":
            found.put_nowait(answer[0][0] if name == "fetch" else answer[0])
        return answer

    monkeypatch.setattr(client, name, noting)
    return found


async def sleep(store: Store, looks: "asyncio.Queue[bool]") -> "asyncio.Task[bool]":
    """Somebody who waits and has looked. (The first look of a storage may be followed by one more: it listens now.)"""
    assert not await store.wait(["q"], 0.05)
    while not looks.empty():
        looks.get_nowait()
    waiting = asyncio.create_task(store.wait(["q"], 30))
    assert not await looks.get()
    return waiting


async def test_he_who_is_told_of_a_job_takes_it_without_another_look(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    waiting = await sleep(store, looks)
    await producer.enqueue([NewJob("q", b"x")])
    assert await waiting
    assert looks.empty()
    assert [job.data for job in await store.take("q", 1)] == [b"x"]


async def test_he_who_knows_when_a_job_starts_takes_it_then_without_another_look(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    await producer.enqueue([NewJob("q", b"x", delay=0.3)])
    waiting = await sleep(store, looks)
    assert await waiting
    assert looks.empty()
    assert [job.data for job in await store.take("q", 1)] == [b"x"]


async def test_he_looks_again_when_something_else_happens_in_the_queue(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    (answer,) = await producer.enqueue([NewJob("q", b"x", delay=0.3, key="k")])
    waiting = await sleep(store, looks)
    await producer.enqueue([NewJob("q", b"later", delay=0.6, key="k", on_duplicate="replace")])
    assert not await looks.get()
    assert await waiting
    (job,) = await store.take("q", 1)
    assert (job.id, job.data) == (answer.id, b"later")


async def test_a_job_that_is_only_delayed_is_no_reason_to_get_up(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    waiting = await sleep(store, looks)
    await producer.enqueue([NewJob("q", delay=900)])
    assert not await looks.get()
    assert not waiting.done()
    waiting.cancel()


async def test_a_job_in_a_paused_queue_is_no_reason_to_get_up(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    await producer.pause("q")
    waiting = await sleep(store, looks)
    await producer.enqueue([NewJob("q")])
    assert not await looks.get()
    assert not waiting.done()
    await producer.resume("q")
    assert await waiting


async def test_a_lease_that_was_settled_is_no_reason_to_get_up_at_its_end(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    await producer.enqueue([NewJob("q")])
    (job,) = await producer.take("q", 1, lease=0.3)
    waiting = await sleep(store, looks)
    assert await producer.settle([Done(job.lease)]) == []
    assert not await looks.get()
    assert not waiting.done()
    waiting.cancel()
