"""The clerk does the house's own jobs beside the handlers, in every worker."""

import asyncio

import pytest

from accoda import App, StorageUnavailable, Worker, WorkerOptions
from accoda.runtime.clerk import Clerk, duties_of
from accoda.schedules import QUEUE, list_all


@pytest.fixture
async def app():
    async with App("memory://") as app:
        yield app


class Duty:
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


async def test_a_duty_that_fails_is_taken_up_again_and_stops_no_other(app, monkeypatch):
    monkeypatch.setattr("accoda.runtime.clerk.AGAIN", 0.0)
    bad, good = Duty(3), Duty(0)
    clerk = Clerk(app, [bad, good])
    clerk.start()
    clerk.start()
    async with asyncio.timeout(10):
        await bad.working.wait()
        await good.working.wait()
    assert (bad.runs, good.runs) == (4, 1)
    await clerk.close()
    await clerk.close()


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


async def test_a_worker_without_errands_leaves_the_ticks_to_others(app):
    @app.every("1h")
    async def hourly() -> None: ...

    worker = Worker(app, WorkerOptions(managed=False, errands=False))
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
    real = type(await app.connections.get()).peek

    async def flaky(self, *args, **kwargs):
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StorageUnavailable("away")
        return await real(self, *args, **kwargs)

    monkeypatch.setattr(type(await app.connections.get()), "peek", flaky)
    clerk = Clerk(app, [])
    clerk.start()
    async with asyncio.timeout(10):
        while QUEUE not in (await app.storage.stats()).queues:
            await asyncio.sleep(0.01)
    await clerk.close()
    assert [view.name for view in await list_all(app.storage)] == ["hourly"]


async def test_every_system_queue_has_a_duty(app):
    queues = [duty.queue.removeprefix("accoda.") for duty in duties_of(app)]
    assert queues == ["schedules", "replays", "bulk", "history", "webhooks"]


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
