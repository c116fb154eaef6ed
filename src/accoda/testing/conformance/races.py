"""Many at once: tasks of one loop, threads with a loop each, several handles, several processes."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from accoda.model import Done, NewJob
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    Q,
    Suite,
    add,
    find,
    let_run,
    need_shared,
    stats_of,
    take_ids,
    take_one,
    waiters_of,
)
from accoda.testing.other_process import attach, count_up, drain
from accoda.testing.store_fixture import StoreFixture

T = TypeVar("T")
JOBS = 150
RACERS = 4


async def in_threads(work: Callable[[int], Coroutine[Any, Any, T]], count: int = RACERS) -> list[T]:
    """Run the work in threads that start together, each with an event loop of its own."""
    together = threading.Barrier(count)

    def run(n: int) -> T:
        together.wait(timeout=10)
        return asyncio.run(limited(n))

    async def limited(n: int) -> T:
        async with asyncio.timeout(30):  # a thread cannot be cancelled from outside
            return await work(n)

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(count) as pool:
        return await asyncio.gather(*(loop.run_in_executor(pool, run, n) for n in range(count)))


async def in_processes(fixture: StoreFixture, do: str, *orders: dict[str, Any]) -> list[Any]:
    """Let each order be carried out by a process of its own, on the same store."""
    now = (
        await fixture.now() if fixture.exact else None
    )  # a clock that stands still must show the same in every process
    return list(
        await asyncio.gather(*(_in_process({"url": fixture.url, "now": now, "do": do, "with": o}) for o in orders))
    )


async def _in_process(order: dict[str, Any]) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "accoda.testing.other_process", json.dumps(order), stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"the other process failed: {order['do']}"
    return json.loads(out)


async def all_were_run_once(store: Store, ids: list[int], finished: list[list[int]]) -> None:
    assert sorted(id for each in finished for id in each) == sorted(ids)
    stats = await stats_of(store)
    assert (stats.done, stats.total, stats.expired) == (len(ids), 0, 0)
    assert (await stats_of(store, "next")).ready == len(ids)


async def deliver_all(store: Store, expected: int) -> list[bytes]:
    """Run the shared job again and again until every waiter was served."""
    served: list[bytes] = []
    while len(served) < expected:
        for job in await store.take(Q, 1, lease=3600):
            seen = await waiters_of(store, job.lease)
            while await store.settle([Done(job.lease, waiters=len(seen))]):
                seen = await waiters_of(store, job.lease)
            served += seen
        await asyncio.sleep(0)
    return served


class TestTasksRace(Suite):
    limit = 60.0

    async def test_every_job_is_run_once(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q) for _ in range(JOBS)))
        await all_were_run_once(store, ids, await asyncio.gather(*(drain(store, Q) for _ in range(10))))

    async def test_one_lease_is_settled_once(self, store: Store) -> None:
        await add(store, NewJob(Q))
        job = await take_one(store)
        refused = await asyncio.gather(*(store.settle([Done(job.lease, then=[NewJob("next")])]) for _ in range(10)))
        assert sorted(len(each) for each in refused) == [0] + [1] * 9
        assert (await stats_of(store, "next")).total == 1

    async def test_one_of_many_creates_the_job_of_a_key(self, store: Store) -> None:
        answers = await asyncio.gather(*(store.enqueue([NewJob(Q, key="k")]) for _ in range(20)))
        assert sorted(answer.what for (answer,) in answers) == ["created"] + ["kept"] * 19
        assert len({answer.id for (answer,) in answers}) == 1

    async def test_a_take_that_is_cancelled_loses_no_job(self, store: Store, fixture: StoreFixture) -> None:
        ids = await add(store, *(NewJob(Q) for _ in range(20)))
        for steps in range(5):
            taking = asyncio.create_task(store.take(Q, 3, lease=60))
            for _ in range(steps):
                await asyncio.sleep(0)
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
        await store.stats()  # a take that is still under way is over before the clock moves, and its lease ends with it
        await fixture.advance(60)
        assert await take_ids(store) == ids


class TestThreadsRace(Suite):
    limit = 60.0

    async def test_every_job_is_run_once(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q) for _ in range(JOBS)))
        await all_were_run_once(store, ids, await in_threads(lambda _: drain(store, Q)))

    async def test_producers_and_consumers_lose_nothing(self, store: Store) -> None:
        async def work(n: int) -> list[int]:
            if n % 2:
                return [id for _ in range(30) for id in await add(store, NewJob(Q), NewJob(Q))]
            finished: list[int] = []
            while (await stats_of(store)).done < 120:
                finished += await drain(store, Q)
            return finished

        results = await in_threads(work)
        await all_were_run_once(store, results[1] + results[3], [results[0], results[2]])

    async def test_no_waiter_is_forgotten_or_served_twice(self, store: Store) -> None:
        async def work(n: int) -> list[Any]:
            return await attach(store, Q, str(n), 30) if n else await deliver_all(store, 90)

        served, *_ = await in_threads(work)
        assert sorted(served) == sorted(f"{n}-{i}".encode() for n in (1, 2, 3) for i in range(30))

    async def test_a_document_counts_every_step(self, store: Store) -> None:
        await in_threads(lambda _: count_up(store, "n", 20))
        document = await store.read("n")
        assert document is not None
        assert (document.value, document.version) == (str(20 * RACERS).encode(), 20 * RACERS)

    async def test_an_enqueue_wakes_those_who_wait_in_other_threads(self, store: Store) -> None:
        ready = threading.Barrier(RACERS + 1)

        async def work(_: int) -> bool:
            waiting = asyncio.create_task(store.wait([Q], 3600))
            await let_run(store)
            ready.wait(timeout=10)
            return await waiting

        racing = asyncio.create_task(in_threads(work))
        await asyncio.to_thread(ready.wait, 10)
        await store.enqueue([NewJob(Q)])
        assert await racing == [True] * RACERS


class TestHandlesRace(Suite):
    limit = 60.0

    async def test_every_job_is_run_once(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        ids = await add(store, *(NewJob(Q) for _ in range(JOBS)))
        handles = [store, *[await fixture.open() for _ in range(RACERS - 1)]]
        try:
            await all_were_run_once(store, ids, await asyncio.gather(*(drain(handle, Q) for handle in handles)))
        finally:
            for handle in handles[1:]:
                await handle.close()

    async def test_a_handle_sees_at_once_what_another_did(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        async with await fixture.open() as other:
            (id,) = await add(store, NewJob(Q))
            job = await take_one(other)
            assert job.id == id
            assert await take_ids(store) == []
            assert await store.settle([Done(job.lease)]) == []
            assert await find(other, id) is None

    async def test_handles_opened_in_threads_share_the_work(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        ids = await add(store, *(NewJob(Q) for _ in range(JOBS)))

        async def work(_: int) -> list[int]:
            async with await fixture.open() as handle:
                return await drain(handle, Q)

        await all_were_run_once(store, ids, await in_threads(work))

    async def test_stores_opened_for_the_first_time_at_once_agree(self, fixture: StoreFixture) -> None:
        need_shared(fixture)

        async def work(n: int) -> list[str]:
            async with await fixture.open() as handle:
                return await attach(handle, Q, str(n), 1)

        said = [what for each in await in_threads(work) for what in each]
        assert sorted(said) == ["attached"] * (RACERS - 1) + ["created"]


class TestProcessesRace(Suite):
    limit = 60.0

    async def test_every_job_is_run_once(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        ids = await add(store, *(NewJob(Q) for _ in range(JOBS)))
        finished = await in_processes(fixture, "drain", *({"queue": Q} for _ in range(3)))
        await all_were_run_once(store, ids, finished)

    async def test_no_waiter_is_forgotten_or_served_twice(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        orders = [{"queue": Q, "name": str(n), "count": 20} for n in range(2)]
        serving = asyncio.create_task(deliver_all(store, 40))
        try:
            said = await in_processes(fixture, "attach", *orders)
            assert sorted(await serving) == sorted(f"{n}-{i}".encode() for n in range(2) for i in range(20))
            assert all(len(each) == 20 for each in said)
        finally:
            serving.cancel()

    async def test_a_document_counts_every_step(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        await in_processes(fixture, "count_up", *({"name": "n", "count": 25} for _ in range(2)))
        document = await store.read("n")
        assert document is not None
        assert (document.value, document.version) == (b"50", 50)

    async def test_an_enqueue_wakes_a_wait_in_another_process(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        waiting = asyncio.create_task(store.wait([Q], 3600))
        await let_run(store)
        assert not waiting.done()
        ((id,),) = await in_processes(fixture, "enqueue", {"queue": Q})
        assert await waiting
        assert await take_ids(store) == [id]

    @pytest.mark.parametrize("count", [1, 5])
    async def test_the_jobs_of_a_process_that_vanished_come_back(
        self, store: Store, fixture: StoreFixture, count: int
    ) -> None:
        need_shared(fixture)
        ids = await add(store, *(NewJob(Q) for _ in range(5)))
        (taken,) = await in_processes(fixture, "vanish", {"queue": Q, "count": count})
        assert taken == ids[:count]
        assert await take_ids(store) == ids[count:]
        await fixture.advance(60)
        assert [(job.id, job.attempts) for job in await store.take(Q, 9)] == [(id, 1) for id in taken]
