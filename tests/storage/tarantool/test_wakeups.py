"""The long poll of a Tarantool storage: one for all waits, which takes nothing, and spares most second looks."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from proof.servers.tarantool import TarantoolServer, administer

from accoda import Done, Job, NewJob, Store, open_storage
from accoda.errors import StorageClosed

Q = "q"


@pytest_asyncio.fixture
async def producer(server: TarantoolServer, store: Store) -> AsyncIterator[Store]:
    """Another process, as far as the server knows."""
    async with await open_storage(server.url) as opened:
        yield opened


@pytest.fixture
def looks(store: Store, monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[bool]":
    """What each look of a wait has found."""
    found: asyncio.Queue[bool] = asyncio.Queue()
    client: Any = store._client  # type: ignore[attr-defined]
    real = client.call

    async def noting(verb: str, *args: Any) -> Any:
        answer = await real(verb, *args)
        if verb == "wait":
            found.put_nowait(answer[0])
        return answer

    monkeypatch.setattr(client, "call", noting)
    return found


async def sleeping(store: Store, looks: "asyncio.Queue[bool]") -> "asyncio.Task[bool]":
    """A wait that has looked once and sleeps."""
    waiting = asyncio.create_task(store.wait([Q], 30))
    assert not await looks.get()
    return waiting


async def take_due(store: Store) -> Job:
    """By our clock it is due; by the server's, which is read anew only now and then, it may be a millisecond later."""
    jobs = await store.take(Q, 1)
    while not jobs and await store.wait([Q], 5):
        jobs = await store.take(Q, 1)
    (job,) = jobs
    return job


async def test_a_wait_that_hears_of_a_ready_job_ends_without_another_look(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    waiting = await sleeping(store, looks)
    await producer.enqueue([NewJob(Q, b"x")])
    assert await waiting
    assert looks.empty()
    assert [job.data for job in await store.take(Q, 1)] == [b"x"]


async def test_a_wait_that_knows_a_start_time_ends_then_without_another_look(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    await producer.enqueue([NewJob(Q, b"x", delay=0.3)])
    waiting = await sleeping(store, looks)
    assert await waiting
    assert looks.empty()
    assert (await take_due(store)).data == b"x"


async def test_a_job_that_is_replaced_before_its_start_is_looked_at_again(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    (answer,) = await producer.enqueue([NewJob(Q, b"x", delay=0.3, key="k")])
    waiting = await sleeping(store, looks)
    await producer.enqueue([NewJob(Q, b"later", delay=0.6, key="k", on_duplicate="replace")])
    assert not await looks.get()
    assert await waiting
    job = await take_due(store)
    assert (job.id, job.data) == (answer.id, b"later")


async def test_a_delayed_job_does_not_end_a_wait(store: Store, producer: Store, looks: "asyncio.Queue[bool]") -> None:
    waiting = await sleeping(store, looks)
    await producer.enqueue([NewJob(Q, delay=900)])
    assert not await looks.get()
    assert not waiting.done()
    waiting.cancel()


async def test_a_job_in_a_paused_queue_does_not_end_a_wait(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    await producer.pause(Q, None)
    waiting = await sleeping(store, looks)
    await producer.enqueue([NewJob(Q)])
    assert not await looks.get()
    assert not waiting.done()
    await producer.pause(Q, 0)
    assert await waiting


async def test_the_end_of_a_lease_that_was_settled_does_not_end_a_wait(
    store: Store, producer: Store, looks: "asyncio.Queue[bool]"
) -> None:
    await producer.enqueue([NewJob(Q)])
    (job,) = await producer.take(Q, 1, lease=0.3)
    waiting = await sleeping(store, looks)
    assert await producer.settle([Done(job.lease)]) == []
    assert not await looks.get()
    assert not waiting.done()
    waiting.cancel()


async def test_a_wait_hears_of_jobs_after_a_restart(server: TarantoolServer, store: Store) -> None:
    sleeping = asyncio.create_task(store.wait([Q], 60))
    await store.stats()
    server.kill()
    await asyncio.to_thread(server.start)
    async with await open_storage(server.url) as other:
        await other.enqueue([NewJob(Q)])
    assert await asyncio.wait_for(sleeping, 10)


SLEEPER = """
import asyncio, sys
from accoda import open_storage

async def main():
    async with await open_storage(sys.argv[1]) as store:
        waiting = asyncio.create_task(store.wait(["q"], 3600))
        await store.stats()
        print("waiting", flush=True)
        await waiting

asyncio.run(main())
"""

LISTENERS = """
local count = 0
for _ in pairs(_accoda.memory.wakeups.listeners) do count = count + 1 end
return count
"""


async def test_a_client_killed_during_a_long_poll_loses_nothing(server: TarantoolServer, store: Store) -> None:
    sleepers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", SLEEPER, server.url, stdout=asyncio.subprocess.PIPE)
        for _ in range(2)
    ]
    for sleeper in sleepers:
        assert sleeper.stdout is not None
        assert await sleeper.stdout.readline() == b"waiting\n"
        sleeper.send_signal(signal.SIGSTOP)  # it is there, but will never answer
    assert await administer(server.url, LISTENERS) == 2
    ids = [answer.id for answer in await store.enqueue([NewJob(Q)] * 5)]
    for sleeper in sleepers:
        sleeper.kill()
        await sleeper.wait()
    ids += [answer.id for answer in await store.enqueue([NewJob(Q)] * 5)]
    assert [(job.id, job.attempts) for job in await store.take(Q, 100)] == [(id, 0) for id in ids]
    async with asyncio.timeout(10):  # far less than the length of a poll: its end is noticed, not waited for
        while await administer(server.url, LISTENERS):
            await asyncio.sleep(0.01)


async def test_a_poll_of_a_client_that_is_gone_ends_at_once(server: TarantoolServer) -> None:
    store = await open_storage(server.url)
    waiting = asyncio.create_task(store.wait(["never"], 3600))
    await store.stats()
    assert await administer(server.url, LISTENERS) == 1
    await store.close()
    with pytest.raises(StorageClosed):
        await waiting
    async with asyncio.timeout(10):
        while await administer(server.url, LISTENERS):
            await asyncio.sleep(0.01)


async def test_many_waits_keep_one_poll(server: TarantoolServer, store: Store) -> None:
    waits = [asyncio.create_task(store.wait([f"w{n}", "shared"], 3600)) for n in range(20)]
    await store.stats()
    assert await administer(server.url, LISTENERS) == 1
    await store.enqueue([NewJob("w7")])
    assert await asyncio.wait_for(waits.pop(7), 10)
    await store.enqueue([NewJob("shared")])
    assert await asyncio.wait_for(asyncio.gather(*waits), 10) == [True] * 19
