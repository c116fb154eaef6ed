"""Dead letters are kept as long as their queue says, by the storage's clock."""

import asyncio
from datetime import timedelta

from accoda import App, Bury, ManualClock, NewJob, Worker, WorkerOptions
from accoda.runtime.retention import PIECE, forget_dead
from accoda.settings import Settings
from accoda.storage.memory import MemoryStorage
from accoda.storage.observed import Call, Observed
from accoda.storage.protocol import Store

DAY = 86_400.0


async def bury(store: Store, queue: str, count: int) -> None:
    await store.enqueue([NewJob(queue)] * count)
    await store.settle([Bury(job.lease, "no") for job in await store.take(queue, count)])


async def dead(store: Store, queue: str) -> int:
    return (await store.stats()).queues[queue].dead


async def test_dead_jobs_go_when_their_time_is_over() -> None:
    clock = ManualClock()
    store = MemoryStorage(clock)
    await bury(store, "a", 2)
    await bury(store, "kept", 2)
    clock.advance(DAY / 2)
    await bury(store, "a", 3)
    clock.advance(DAY / 2 + 1)
    assert await forget_dead(store, {"a": DAY}) == 2
    assert await forget_dead(store, {"a": DAY}) == 0
    assert (await dead(store, "a"), await dead(store, "kept")) == (3, 2)


async def test_many_are_deleted_piece_by_piece() -> None:
    clock = ManualClock()
    calls: list[Call] = []
    store = Observed(MemoryStorage(clock), calls.append)
    await bury(store, "a", 2 * PIECE + 1)
    clock.advance(DAY)
    assert await forget_dead(store, {"a": 60}) == 2 * PIECE + 1
    assert [call.verb for call in calls].count("purge") == 4


async def test_a_queue_that_says_nothing_costs_nothing() -> None:
    calls: list[Call] = []
    assert await forget_dead(Observed(MemoryStorage(), calls.append), {}) == 0
    assert calls == []


async def test_a_worker_forgets_the_dead_of_its_queues() -> None:
    clock = ManualClock()
    app = App("memory://", clock=clock)

    @app.handler("a", keep_dead_for=timedelta(days=1))
    async def short(n: int) -> None: ...

    @app.handler("b")
    async def kept(n: int) -> None: ...

    await bury(app.storage, "a", 2)
    await bury(app.storage, "b", 2)
    clock.advance(2 * DAY)
    worker = Worker(app, WorkerOptions(settings=Settings.load(environ={})))
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(10):
        while await dead(app.storage, "a"):
            await asyncio.sleep(0.005)
        worker.shutdown()
        await task
    assert await dead(app.storage, "b") == 2
