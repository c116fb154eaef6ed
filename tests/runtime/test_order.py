"""The order of a queue over all its types, on every storage: no job starts while one before it is ready."""

import asyncio
import random
import threading
import time
from typing import Any

import pytest

from accoda import App, Batch, Priority, Worker, WorkerOptions
from accoda.envelope import type_of
from accoda.settings import Settings

JOBS = 120


class Starts:
    """The leases of jobs, in the order in which their handlers were called."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []
        self.all = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    def note(self, job: Any) -> None:
        with self._lock:
            self.jobs.append(job)
            if len(self.jobs) == JOBS:
                self._loop.call_soon_threadsafe(self.all.set)


def make(app: App, queue: str, chance: random.Random, starts: Starts) -> list[str | None]:
    """Handlers of several types, of every form; the types."""
    slots = chance.choice([1, 2, 5, 10, 30])

    @app.handler(queue, type="async", concurrency=slots)
    async def single(seconds: float) -> None:
        starts.note(app.current.job)
        await asyncio.sleep(seconds)

    @app.handler(queue, type="def")
    def threaded(seconds: float) -> None:
        starts.note(app.current.job)
        threading.Event().wait(seconds)

    @app.handler(queue, type="batch")
    async def whole(batch: Batch[float]) -> None:
        for job in batch:
            starts.note(job.job)
        await asyncio.sleep(max(job.payload for job in batch))

    @app.handler(queue)
    async def rest(seconds: float) -> None:
        starts.note(app.current.job)

    return ["async", "def", "batch", "other", None][: chance.randint(1, 5)]


@pytest.mark.parametrize("seed", range(4))
async def test_no_job_starts_while_one_before_it_is_ready(url: str, seed: int) -> None:
    chance, queue = random.Random(seed), f"work-{seed}"
    async with App(url) as app:
        starts = Starts()
        types = make(app, queue, chance, starts)
        settings = Settings.load(environ={}, overrides={"max_processors": chance.choice([1, 1, 3])})
        worker = Worker(app, WorkerOptions(settings=settings, managed=False, system_jobs=False))
        running = asyncio.create_task(worker.run())
        there: dict[int, float] = {}
        for _ in range(JOBS // 4):
            for _ in range(4):
                told = await app.enqueue(
                    queue,
                    chance.choice([0.0, 0.0, 0.002, 0.02]),
                    type=chance.choice(types),
                    priority=chance.choice(list(Priority)),
                    delay=chance.choice([None, None, 0.0, 0.005, 0.05]),
                )
                there[told.id] = time.time() * 1000
            await asyncio.sleep(chance.choice([0, 0, 0.005]))
        async with asyncio.timeout(60):
            await starts.all.wait()
        assert await worker.graceful_stop(30)
        await running
    found = [(job, job.lease.taken_at) for job in starts.jobs]
    assert len({job.id for job, _ in found}) == JOBS
    # Of takes that go on at once, the one that began first may be the last to see the jobs.
    slack = 0 if settings.worker("max_processors").value == 1 else 100
    for later, taken in found:
        # What was ready before this job was taken, and goes before it, was not taken after. The store runs here, so its
        # clock is ours. A job is there when its transaction has ended, which is after the moment of its creation.
        passed_over = [
            job.id
            for job, moment in found
            if (job.rank, job.id) < (later.rank, later.id)
            and max(job.start_time, there[job.id]) < taken < moment - slack
        ]
        assert not passed_over, (later, passed_over)
    # What was taken earlier is started earlier; the jobs of one take start together. Threads begin when they get to it.
    moments = [moment for job, moment in found if type_of(job.data) != "def"]
    assert settings.worker("max_processors").value > 1 or moments == sorted(moments)
