"""A worker that drains finishes what it runs, takes nothing more, and can be sent back to work."""

import asyncio

import pytest

from accoda import App, NotFound, Worker, WorkerOptions
from accoda.operations import workers
from accoda.runtime.drain import KEPT, PREFIX, is_asked
from accoda.runtime.heartbeat import read_heartbeats
from accoda.runtime.manager.learning import FleetView, situation
from accoda.settings import Settings


@pytest.fixture
async def app():
    async with App("memory://") as app:
        yield app


async def until(condition):
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def worker(app, monkeypatch):
    """With two processors, for jobs that end when they are told."""
    monkeypatch.setenv("ACCODA_WORKER_MAX_PROCESSORS", "2")
    app.free = asyncio.Event()
    app.began = []

    @app.handler("a", batch=1)
    async def a(n: int) -> None:
        app.began.append(n)
        await app.free.wait()

    worker = Worker(app, WorkerOptions(managed=False, system_jobs=False, settings=Settings.load(worker="default")))
    running = asyncio.create_task(worker.run())
    await until(lambda: _lives(app))
    yield worker
    app.free.set()
    await worker.graceful_stop()
    await running


async def _lives(app):
    return bool(await read_heartbeats(app.storage))


async def test_it_finishes_what_runs_and_takes_nothing_more(app, worker):
    await app.enqueue_many("a", [1, 2, 3, 4])

    async def both_run():
        return len(app.began) >= 1

    await until(both_run)
    view = await workers.drain(app, worker.id)
    assert view.draining and not view.drained
    await worker._beat()
    running = len(app.began)
    app.free.set()

    async def drained():
        await worker._beat()
        return (await workers.get(app, worker.id)).drained

    await until(drained)
    stats = (await app.storage.stats()).queues["a"]
    assert (stats.done, stats.taken, stats.ready) == (running, 0, 4 - running) and stats.ready > 0
    [beat] = await read_heartbeats(app.storage)
    assert beat.draining and beat.ready and worker.problem == ""  # it is well; it only takes nothing

    view = await workers.drain(app, worker.id, False)
    assert not view.draining
    await worker._beat()

    async def all_done():
        return (await app.storage.stats()).queues["a"].done == 4

    await until(all_done)
    assert sorted(app.began) == [1, 2, 3, 4]


async def test_jobs_that_come_while_it_drains_are_left_to_others(app, worker):
    app.free.set()
    await workers.drain(app, worker.id)
    await worker._beat()
    await app.enqueue("a", 1)
    for _ in range(50):
        await asyncio.sleep(0)
    assert app.began == [] and (await app.storage.stats()).queues["a"].ready == 1


async def test_it_is_stopped_while_it_drains(app, worker):
    await workers.drain(app, worker.id)
    await worker._beat()
    assert await worker.graceful_stop(5)


async def test_a_worker_that_stands_idle_because_it_drains_is_not_stalled(app, worker):
    app.free.set()
    await workers.drain(app, worker.id)
    await worker._beat()
    await app.enqueue("a", 1)
    worker._ready_context().rotation.last_take -= 10_000
    await worker._beat()
    assert worker.problem == ""


async def test_a_worker_that_is_not_there_cannot_be_drained(app):
    with pytest.raises(NotFound):
        await workers.drain(app, "unknown")
    assert await app.storage.documents(PREFIX) == []


async def test_it_sees_to_it_that_a_long_drain_is_not_forgotten(app, worker):
    store = app.storage
    await store.write(PREFIX + worker.id, b"drain", ttl=KEPT / 3)
    before = await store.read(PREFIX + worker.id)
    assert await is_asked(store, worker.id, worker._clock.now())
    after = await store.read(PREFIX + worker.id)
    assert before is not None and after is not None and after.expires_at > before.expires_at + KEPT * 300


async def test_the_manager_gives_nothing_to_a_worker_that_drains(app, worker):
    await workers.drain(app, worker.id)
    await worker._beat()
    beats = tuple(await read_heartbeats(app.storage))
    stats = await app.storage.stats()
    assert situation(FleetView(workers=beats, stats=stats, at=0), {}).workers == ()
