"""Threads of `def` handlers that hang: each holds its slot, so there are never more of them than slots."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.running import running, until

from accoda import App, Batch
from accoda.runtime.runners.base import BaseRunner
from accoda.settings import Settings

SLOTS = 3


class Hung:
    """A call that hangs in C, where no exception gets in, until it is let go."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.threads: list[threading.Thread] = []

    def call(self) -> None:
        if not self.free.is_set():
            self.threads.append(threading.current_thread())
            self.free.wait()


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    monkeypatch.setattr(BaseRunner, "grace", 0.02)
    hung = Hung()
    yield hung
    hung.free.set()
    for thread in hung.threads:
        thread.join(10)
        assert not thread.is_alive()


def processors(count: int) -> Settings:
    """So many processors, of one slot each."""
    overrides = {"max_processors": count, "concurrency": count, "heartbeat": 0.02, "stall_after": 0.02}
    return Settings.load(environ={}, overrides=overrides)


async def until_done(app: App, count: int) -> None:
    async with asyncio.timeout(20):
        while (await app.storage.stats()).queues["a"].done < count:
            await asyncio.sleep(0.002)


async def beats(app: App, count: int) -> None:
    """Let the worker look after itself that often."""
    for _ in range(count):
        versions = {document.version for document in await app.storage.documents("worker/")}
        async with asyncio.timeout(20):
            while {document.version for document in await app.storage.documents("worker/")} == versions:
                await asyncio.sleep(0.002)


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_hanging_threads_hold_their_processors_and_give_them_back_when_they_end(
    hung: Hung, batch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("memory://")
    if batch:

        @app.handler("a", timeout=0.02, retry=0, batch=2)
        def whole(jobs: Batch[int]) -> None:
            hung.call()
    else:

        @app.handler("a", timeout=0.02, retry=0, batch=2)
        def single(n: int) -> None:
            hung.call()

    await app.enqueue_many("a", range(20))
    before = threading.active_count()
    async with running(app, settings=processors(SLOTS), system_jobs=False) as worker:
        # A worker that is slow to begin may have found itself stalled before, by the short `stall_after`.
        await until(lambda: worker.problem.startswith("all slots are held"))
        assert worker.problem == "all slots are held by threads whose handlers were stopped but do not end"
        logged = len(caplog.records)
        with caplog.at_level(logging.ERROR, "accoda.worker"):
            await beats(app, 3)
        # Jobs are ready and go on failing, but nothing more is started, and it is no stall: nothing was connected anew.
        assert len(hung.threads) == SLOTS
        # The threads, that of the lease heartbeat, and idle ones: one that is slow to start gets another beside it.
        assert threading.active_count() <= before + 2 * SLOTS + 1
        assert not worker.ready and not worker.heartbeat().ready
        assert not any("stalled" in record.getMessage() for record in caplog.records[logged:])
        assert worker.problem in caplog.text
        stats = (await app.storage.stats()).queues["a"]
        assert (stats.ready, stats.taken, stats.expired) == (20, 0, 0)
        hung.free.set()
        await until(lambda: worker.ready)
        await until_done(app, 20)
    assert len(hung.threads) == SLOTS


async def test_the_processors_that_are_left_go_on(hung: Hung) -> None:
    app, seen = App("memory://"), set[int]()

    @app.handler("a", timeout=0.02, retry=0, batch=1)
    def work(n: int) -> None:
        if n < 2 and n not in seen:
            seen.add(n)
            hung.call()

    await app.enqueue_many("a", range(30))
    async with running(app, settings=processors(SLOTS), system_jobs=False) as worker:
        await until_done(app, 30)
        assert len(hung.threads) == 2
        await app.enqueue("a", 99)  # whichever processor is called, it is not one of those that are held
        await until_done(app, 31)
        assert not worker._all_held()


async def test_a_processor_that_is_held_counts_until_its_thread_ends_however_the_settings_change(
    hung: Hung, tmp_path: Path
) -> None:
    def write(count: int) -> None:
        (tmp_path / "new.toml").write_text(f"[worker.queue.default]\nmax_processors = {count}\n")
        (tmp_path / "new.toml").rename(tmp_path / "settings.toml")

    app = App("memory://")

    @app.handler("a", timeout=0.02, retry=0, batch=1)
    def work(n: int) -> None:
        hung.call()

    write(SLOTS)
    await app.enqueue_many("a", range(20))
    settings = Settings.load([str(tmp_path / "settings.toml")], environ={})
    async with running(app, settings=settings, system_jobs=False) as worker:
        await until(lambda: worker.problem)
        for count in (1, SLOTS):
            write(count)
            await until(lambda: worker.heartbeat().max_processors == count)  # noqa: B023 - called at once
        await until(lambda: worker.problem)
        assert len(hung.threads) == len(worker._processors) == SLOTS
        hung.free.set()
        await until(lambda: worker.ready and len(worker._processors) == SLOTS)
    assert len(hung.threads) == SLOTS


async def test_a_burst_does_not_wait_for_a_hanging_thread_if_nothing_is_left_to_start(hung: Hung) -> None:
    app = App("memory://")

    @app.handler("a", timeout=0.02, retry=3600)
    def work(n: int) -> None:
        hung.call()

    await app.enqueue("a", 0)
    async with asyncio.timeout(20):
        await app.run_until_idle()
    assert (await app.storage.stats()).queues["a"].delayed == 1
