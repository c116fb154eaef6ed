"""System jobs are done beside the handlers' jobs, in every worker."""

import asyncio

import pytest

from accoda import App, StorageUnavailable, Worker, WorkerOptions
from accoda.runtime.system_jobs import SystemJobs
from accoda.schedules import QUEUE, list_all


@pytest.fixture
async def app():
    async with App("memory://") as app:
        yield app


class Flaky:
    """Fails as often as told, then waits for ever."""

    queue = "accoda.test"

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.runs = 0
        self.working = asyncio.Event()

    async def run_once(self, store) -> int:
        return 0

    async def run(self, store) -> None:
        self.runs += 1
        if self.runs <= self.failures:
            raise RuntimeError("a mistake")
        self.working.set()
        await asyncio.Event().wait()


async def test_jobs_that_fail_are_taken_up_again_and_stop_no_others(app, monkeypatch):
    monkeypatch.setattr("accoda.runtime.system_jobs.AGAIN", 0.0)
    bad, good = Flaky(3), Flaky(0)
    jobs = SystemJobs(app.storage, [bad, good])
    jobs.start()
    jobs.start()
    async with asyncio.timeout(10):
        await bad.working.wait()
        await good.working.wait()
    assert (bad.runs, good.runs) == (4, 1)
    await jobs.close()
    await jobs.close()


async def test_a_worker_ticks_while_its_only_processor_is_busy(app):
    ticked, free = asyncio.Event(), asyncio.Event()

    @app.handler("long")
    async def long(payload: None) -> None:
        await free.wait()

    @app.every(0.1, queue="ticks")
    async def tick() -> None: ...

    await long.enqueue(None)
    worker = Worker(app, WorkerOptions(managed=False))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        while "ticks" not in (await app.storage.stats()).queues:
            await app.storage.wait(["ticks"], 1.0)
        ticked.set()
    free.set()
    await worker.graceful_stop()
    await running
    assert ticked.is_set()


async def test_a_worker_without_system_jobs_leaves_the_ticks_to_others(app):
    @app.every("1h")
    async def hourly() -> None: ...

    worker = Worker(app, WorkerOptions(managed=False, system_jobs=False))
    running = asyncio.create_task(worker.run())
    await hourly.enqueue(keep_for=60)
    while not (await app.storage.stats()).queues["hourly"].done:
        await asyncio.sleep(0.01)
    assert QUEUE not in (await app.storage.stats()).queues
    await worker.graceful_stop()
    await running


async def test_declared_schedules_are_stored_as_soon_as_the_store_answers(app, monkeypatch):
    @app.every("1h")
    async def hourly() -> None: ...

    tries = 0
    real = type(await app.connections.get()).look

    async def flaky(self, *args, **kwargs):
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StorageUnavailable("away")
        return await real(self, *args, **kwargs)

    monkeypatch.setattr(type(await app.connections.get()), "look", flaky)
    jobs = SystemJobs(app.storage, app.system_jobs())
    jobs.start()
    async with asyncio.timeout(10):
        while QUEUE not in (await app.storage.stats()).queues:
            await asyncio.sleep(0.01)
    await jobs.close()
    assert [view.name for view in await list_all(app.storage)] == ["hourly"]


async def test_every_system_queue_has_its_jobs(app):
    queues = {job.queue.removeprefix("accoda.") for job in app.system_jobs()}
    assert queues == {"schedules", "bulk", "history", "webhooks", "flows", "flows.log"}


async def test_run_until_idle_does_the_ticks_that_are_due(app):
    @app.every("1h")
    async def hourly() -> None: ...

    async with app.testing() as trial:
        await app.run_until_idle()
        assert trial.runs("hourly") == []
        trial.advance(hours=1)
        assert await app.run_until_idle() == 1
        (run,) = trial.runs("hourly")
        assert run.ended == "done"
