"""The same app on every storage, by changing the URL alone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from accoda import App, Worker, WorkerOptions
from accoda.settings import Settings


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app


async def test_jobs_of_two_queues_flow_through_a_worker(app: App) -> None:
    ran: list[int] = []
    all_ran = asyncio.Event()

    def note(n: int) -> None:
        ran.append(n)
        if len(ran) == 301:
            all_ran.set()

    @app.handler("evens", batch=20)
    async def evens(n: int) -> None:
        note(n)

    @app.handler("odds", batch=7)
    def odds(n: int) -> None:
        note(n)

    settings = Settings.load(environ={}, overrides={"max_processors": 3, "heartbeat": 0.2})
    worker = Worker(app, WorkerOptions(settings=settings))
    running = asyncio.create_task(worker.run())
    await evens.enqueue_many(range(0, 300, 2))
    await odds.enqueue_many(range(1, 300, 2))
    await evens.enqueue(300, delay=0.3)
    async with asyncio.timeout(30):
        await all_ran.wait()
    assert await worker.graceful_stop(10)
    await running
    assert sorted(ran) == list(range(301))
    queues = (await app.storage.stats()).queues
    assert (queues["evens"].done, queues["odds"].done) == (151, 150)
    assert (queues["evens"].total, queues["odds"].total) == (0, 0)


async def test_a_long_job_keeps_its_short_lease_and_can_be_cancelled(app: App) -> None:
    started = asyncio.Event()
    ended: list[str] = []
    ids: list[int] = []

    @app.handler("long", lease=1.5, batch=1, keep_for=60)
    async def long(n: int) -> str:
        ids.append(app.current.id)
        if n == 0:
            await asyncio.sleep(3)
            return "kept"
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("stopped")
        return ""

    worker = Worker(app, WorkerOptions(settings=Settings.load(environ={}, overrides={"max_processors": 2})))
    running = asyncio.create_task(worker.run())
    kept, cancelled = await long.enqueue(0), await long.enqueue(1)
    async with asyncio.timeout(30):
        assert await app.result(kept.id) == "kept"
        await started.wait()
        assert await app.cancel(cancelled.id)
        while not ended:
            await asyncio.sleep(0.01)
    assert await worker.graceful_stop(10)
    await running
    assert ids.count(kept.id) == 1
    found = await app.find(cancelled.id)
    assert found is not None and found.state == "cancelled"


async def test_results_and_progress_come_back(app: App) -> None:
    @app.handler("sums", keep_for=60)
    async def add(numbers: list[int]) -> int:
        await app.progress(0.5, "adding")
        return sum(numbers)

    made = await add.enqueue([1, 2, 3])
    await app.run_until_idle()
    assert await app.result(made.id, timeout=5) == 6
    told = await app.progress_of(made.id)
    assert told is not None
    assert told.message == "adding"


def test_the_path_of_a_sqlite_file_may_be_anything(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs of ünïcode.db")
    app.sync.enqueue("emails", 1)
    app.sync.close()
