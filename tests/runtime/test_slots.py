"""Single jobs have a slot each: filled again as soon as it is free, whatever the neighbours do."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from accoda import App, Batch, Worker, WorkerOptions
from accoda.settings import Settings
from accoda.storage.memory import MemoryStorage
from accoda.storage.observed import Call, Observed


@asynccontextmanager
async def running(app: App, settings: Settings | None = None, **knobs: Any) -> AsyncIterator[Worker]:
    settings = settings or Settings.load(environ={}, overrides=knobs)
    worker = Worker(app, WorkerOptions(settings=settings, managed=False, system_jobs=False))
    task = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(30):
            yield worker
    finally:
        worker.abort()
        await task


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.002)


class Crowd:
    """Counts how many calls run at once; those of the given payloads wait until they are let go."""

    def __init__(self, *slow: int) -> None:
        self.slow = slow
        self.go = threading.Event()
        self.now = self.most = 0
        self.ended: list[int] = []
        self._lock = threading.Lock()

    def begin(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def end(self, n: int) -> None:
        with self._lock:
            self.now -= 1
            self.ended.append(n)

    async def run(self, n: int) -> None:
        self.begin()
        while n in self.slow and not self.go.is_set():
            await asyncio.sleep(0.002)
        await asyncio.sleep(0)
        self.end(n)

    def run_in_thread(self, n: int) -> None:
        self.begin()
        if n in self.slow:
            self.go.wait(30)
        self.end(n)


@pytest.fixture(params=["async", "def", "middleware"])
def crowd(request: pytest.FixtureRequest) -> tuple[App, Crowd]:
    async def pass_on(batch: Batch[Any], run: Any) -> None:
        await run(batch)

    crowd = Crowd(0)
    app = App("memory://", middleware=[pass_on] if request.param == "middleware" else [])
    function: Any = crowd.run_in_thread if request.param == "def" else crowd.run
    app.add_handler("a", function, {})
    return app, crowd


async def test_a_slow_job_holds_one_slot_and_its_neighbours_are_settled_meanwhile(crowd: tuple[App, Crowd]) -> None:
    app, calls = crowd
    await app.enqueue_many("a", range(100))
    async with running(app):
        await until(lambda: len(calls.ended) == 99)
        async with asyncio.timeout(10):
            while (await app.storage.stats()).queues["a"].done < 99:
                await asyncio.sleep(0.002)
        assert (await app.storage.stats()).queues["a"].taken == 1
        calls.go.set()
        await until(lambda: len(calls.ended) == 100)


@pytest.mark.parametrize(("options", "knobs", "most"), [
    ({}, {}, 10),
    ({"concurrency": 3}, {}, 3),
    ({"concurrency": 25}, {}, 25),
    ({"batch": 4}, {}, 4),
    ({"concurrency": 25}, {"concurrency": 6}, 6),
    ({}, {"concurrency": 6}, 6),
    ({}, {"concurrency": 33}, 33),
    ({"concurrency": 12}, {"concurrency": 33}, 12),
    ({"batch": 4}, {"concurrency": 33}, 4),
    ({}, {"concurrency": 33, "worker/queue/a/batch_size": 5}, 5),
    ({}, {"max_processors": 2}, 20),
    ({}, {"worker/queue/a/concurrency": 2}, 2),
])  # fmt: skip
async def test_as_many_jobs_run_at_once_as_was_said(options: Any, knobs: dict[str, Any], most: int) -> None:
    app, calls = App("memory://"), Crowd(*range(40))
    app.add_handler("a", calls.run, options)
    await app.enqueue_many("a", range(60))
    async with running(app, **knobs) as worker:
        await until(lambda: calls.now == most)
        await asyncio.sleep(0.02)
        assert (calls.now, worker.heartbeat().free) == (most, worker.heartbeat().slots - most)
        calls.go.set()
        await until(lambda: len(calls.ended) == 60)
        assert calls.most == most


async def test_all_queues_of_a_worker_share_its_slots() -> None:
    app, calls = App("memory://"), Crowd(*range(100))
    for queue in ("a", "b", "c"):
        app.add_handler(queue, calls.run, {})
        await app.enqueue_many(queue, range(20))
    async with running(app, concurrency=12):
        await until(lambda: calls.now == 12)
        calls.go.set()
        await until(lambda: len(calls.ended) == 60)
        assert calls.most == 12


async def test_the_number_of_slots_follows_the_settings(tmp_path: Path) -> None:
    def write(count: int) -> None:
        (tmp_path / "new.toml").write_text(f"[worker.queue.default]\nconcurrency = {count}\n")
        (tmp_path / "new.toml").rename(tmp_path / "settings.toml")

    app, calls = App("memory://"), Crowd(*range(100))
    app.add_handler("a", calls.run, {"concurrency": 50})
    await app.enqueue_many("a", range(100))
    write(2)
    async with running(app, Settings.load([str(tmp_path / "settings.toml")], environ={})):
        await until(lambda: calls.now == 2)
        write(7)
        await until(lambda: calls.now == 7)
        calls.go.set()
        await until(lambda: len(calls.ended) == 100)


async def test_a_batch_runs_beside_single_jobs_and_neither_waits_for_the_other() -> None:
    app, calls, batches = App("memory://"), Crowd(*range(10)), list[int]()
    go = asyncio.Event()

    @app.handler("whole", batch=5)
    async def whole(batch: Batch[int]) -> None:
        batches.append(len(batch))
        if len(batches) == 1:
            await go.wait()

    app.add_handler("single", calls.run, {})
    await app.enqueue_many("whole", range(20))
    await app.enqueue_many("single", range(30))
    async with running(app):
        await until(lambda: calls.now == 10 and batches == [5])  # all slots are taken, and a batch runs
        calls.go.set()
        await until(lambda: len(calls.ended) == 30)
        assert batches == [5], "one batch at a time for each processor"
        go.set()
        await until(lambda: batches == [5, 5, 5, 5])


async def test_what_ended_is_settled_in_the_round_trip_of_the_next_take() -> None:
    calls: list[Call] = []

    class Counted(App):
        pass

    app, store = Counted("memory://"), Observed(MemoryStorage(), calls.append)
    app.connections._shared = store

    @app.handler("a", batch=10)
    async def work(n: int) -> None: ...

    await app.enqueue_many("a", range(200))
    calls.clear()
    assert await app.run_until_idle() == 200
    verbs = [call.verb for call in calls if call.queue == "a" or call.verb == "settle"]
    assert verbs.count("take") <= 22 and verbs.count("settle") == 20


async def test_a_stop_lets_every_slot_end_and_settles_each_when_it_does() -> None:
    app, calls = App("memory://"), Crowd(*range(3))
    app.add_handler("a", calls.run, {})
    await app.enqueue_many("a", range(3))
    worker = Worker(app, WorkerOptions(managed=False, system_jobs=False))
    task = asyncio.create_task(worker.run())
    await until(lambda: calls.now == 3)
    worker.shutdown()
    calls.slow = (1, 2)
    async with asyncio.timeout(10):
        while (await app.storage.stats()).queues["a"].done < 1:
            await asyncio.sleep(0.002)
        assert not task.done()
        calls.go.set()
        await task
    assert (await app.storage.stats()).queues["a"].done == 3
