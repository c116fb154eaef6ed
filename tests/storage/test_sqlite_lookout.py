"""How those who wait for jobs in an SQLite file are looked for: by the thread that owns the connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from accoda import ManualClock, NewJob, open_storage
from accoda.clock import SystemClock
from accoda.errors import StorageClosed, StorageUnavailable
from accoda.storage.sqlite import jobs, lookout, watch
from accoda.storage.sqlite.storage import SqliteStorage
from accoda.storage.sqlite.transaction import Transaction

LONG = 60.0  # seconds that a wait would last by itself; no test waits that long


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[tuple[SqliteStorage, SqliteStorage]]:
    """Two connections to one file, as two processes have them."""
    url = f"sqlite:///{folder}/q.db"
    async with asyncio.timeout(30), await open_storage(url) as one, await open_storage(url) as other:
        assert isinstance(one, SqliteStorage)
        assert isinstance(other, SqliteStorage)
        yield one, other


async def waiting(store: SqliteStorage, *queues: str) -> asyncio.Task[bool]:
    """A wait that has found nothing, and is kept."""
    before = list(store._writer._lookouts._waiting)
    task = asyncio.create_task(store.wait(queues, LONG))
    while all(each in before for each in store._writer._lookouts._waiting):
        await asyncio.sleep(0)
    return task


async def dropped(task: asyncio.Task[bool]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture(params=["told", "polled"])
def heard(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the kernel's help, and without; never by the look that is made each second whatever happens."""
    monkeypatch.setattr(lookout, "AT_LEAST_EACH", 60_000)
    if request.param == "polled":
        monkeypatch.setattr(watch, "_watch", lambda file: None)
    return str(request.param)


async def test_a_change_of_others_wakes_only_those_who_have_something_to_take(heard: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        first, second = await waiting(one, "a"), await waiting(one, "b")
        await other.enqueue([NewJob("a")])
        assert await first
        assert len(await one.take("a", 5)) == 1
        await asyncio.sleep(0.01)
        assert not second.done()
        await dropped(second)


async def test_who_is_left_out_of_the_first_look_is_told_by_the_next(heard: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        tasks = [await waiting(one, queue) for queue in "abcdef"]
        await other.enqueue([NewJob(queue) for queue in "abcdef"])
        assert all(await asyncio.gather(*tasks))


async def test_the_thread_does_not_sleep_while_it_has_left_somebody_out(
    heard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "PAUSE", 0.0)  # as if it ended between the round and the sleep
    async with two(tmp_path) as (one, other):
        tasks = [await waiting(one, queue) for queue in "abc"]
        await other.enqueue([NewJob(queue) for queue in "abc"])
        assert all(await asyncio.gather(*tasks))


async def test_one_look_of_the_thread_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is called once there is something: it does not look again."""
    looks: list[Sequence[str]] = []
    real = jobs.look

    def look(tx: Transaction, queues: Sequence[str]) -> tuple[bool, int | None]:
        looks.append(queues)
        return real(tx, queues)

    monkeypatch.setattr(jobs, "look", look)
    monkeypatch.setattr(lookout, "AT_LEAST_EACH", 60_000)
    async with two(tmp_path) as (one, other):
        await one.enqueue([NewJob("a")])
        await one.take("a", 1)
        task = await waiting(one, "a")
        looks.clear()
        await other.enqueue([NewJob("a")])
        assert await task
        assert looks == [("a",)]


async def test_a_busy_thread_hears_of_others(heard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout.Lookouts, "rest", lambda lookouts: 0.0005)  # always too busy for a sleep that listens
    async with two(tmp_path) as (one, other):
        task = await waiting(one, "a")
        await other.enqueue([NewJob("a")])
        while not task.done():
            await asyncio.gather(*(one.read("none") for _ in range(20)))
        assert await task


async def test_our_own_commit_wakes_those_who_wait_for_its_queue(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, _):
        first, second = await waiting(one, "a"), await waiting(one, "b")
        await one.enqueue([NewJob("a")])
        assert await first
        assert not second.done()
        await dropped(second)


async def test_a_start_time_that_another_sets_is_kept_to_the_millisecond(heard: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        task = await waiting(one, "a")
        await other.enqueue([NewJob("a", delay=0.0305)])
        assert await task
        [job] = await one.take("a", 1)
        assert SystemClock().now() >= job.start_time


async def test_a_start_time_by_a_clock_of_its_own(tmp_path: Path) -> None:
    clock = ManualClock()
    url = f"sqlite:///{tmp_path}/q.db"
    async with asyncio.timeout(30), await open_storage(url, clock=clock) as one:
        assert isinstance(one, SqliteStorage)
        async with await open_storage(url, clock=clock) as other:
            task = await waiting(one, "a")
            await other.enqueue([NewJob("a", delay=5)])
            clock.advance(4.999)
            await asyncio.sleep(0.01)
            assert not task.done()
            clock.advance(0.001)
            assert await task


async def test_a_process_that_told_nobody_is_noticed_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "AT_LEAST_EACH", 20)
    monkeypatch.setattr("accoda.storage.sqlite.writer.touch", lambda file: None)  # killed before it could
    async with two(tmp_path) as (one, other):
        task = await waiting(one, "a")
        await other.enqueue([NewJob("a")])
        assert await task


async def test_an_idle_thread_looks_for_all_at_the_same_beat(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    async with await open_storage(f"sqlite:///{tmp_path}/q.db", clock=clock) as one:
        assert isinstance(one, SqliteStorage)
        tasks = []
        for queue in "abc":
            tasks.append(await waiting(one, queue))
            clock.advance(0.3)
        assert {each.moment for each in one._writer._lookouts._waiting} == {1_001_000}
        for task in tasks:
            await dropped(task)


async def test_who_went_away_is_looked_for_no_longer(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, _):
        for _ in range(50):
            await dropped(await waiting(one, "a"))
        assert not await one.wait(["a"], 0)
        assert len(one._writer._lookouts._waiting) <= 1
        assert not await one.wait(["a"], 0.005)


async def test_a_close_ends_every_wait(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, _):
        tasks = [await waiting(one, queue) for queue in "ab"]
        await one.close()
        for task in tasks:
            with pytest.raises(StorageClosed):
                await task


async def test_those_who_wait_hear_that_the_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "AT_LEAST_EACH", 20)
    async with asyncio.timeout(30), await open_storage(f"sqlite:///{tmp_path}/q.db") as one:
        assert isinstance(one, SqliteStorage)
        task = await waiting(one, "a")
        os.rename(tmp_path / "q.db", tmp_path / "gone.db")  # noqa: PTH104
        with pytest.raises(StorageUnavailable, match="removed or replaced"):
            await task


async def test_waits_of_two_event_loops_are_told_each_in_its_own(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        here = await waiting(one, "a")
        there = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(one.wait(["a"], LONG))))
        while len(one._writer._lookouts._waiting) < 2:
            await asyncio.sleep(0)
        await other.enqueue([NewJob("a")])
        assert await here
        assert await there
