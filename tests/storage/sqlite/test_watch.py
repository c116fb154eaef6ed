"""Waits on an SQLite file: other processes and other event loops wake them, and they never miss a change."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from accoda import Cancel, Done, ManualClock, NewJob, open_storage
from accoda.clock import SystemClock
from accoda.errors import StorageClosed, StorageUnavailable
from accoda.model import REPORTS
from accoda.storage.sqlite import watch
from accoda.storage.sqlite.storage import SqliteStorage

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
    """A wait that has looked, found nothing and sleeps."""
    task = asyncio.create_task(store.wait(queues, LONG))
    for _ in range(3):
        await store.read("none")  # calls are answered in turn, so the look was before
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def dropped(task: asyncio.Task[bool]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture(params=["told", "polled"])
def heard(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the kernel's help, and without; never by the look that is made once a second anyway."""
    monkeypatch.setattr(watch, "SLOW_POLL", LONG)
    if request.param == "polled":
        monkeypatch.setattr(watch, "_watch", lambda files, events: None)
    return str(request.param)


async def test_a_change_by_another_process_wakes_only_the_waits_that_have_something_to_take(
    heard: str, tmp_path: Path
) -> None:
    async with two(tmp_path) as (one, other):
        first, second = await waiting(one, "a"), await waiting(one, "b")
        await other.enqueue([NewJob("a")])
        assert await first
        assert len(await one.take("a", 5)) == 1
        assert not second.done()
        await dropped(second)


async def test_a_report_wakes_another_process_that_waits_for_it(heard: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        members = await here.enqueue([NewJob("a", key=f"k{n}", reports_to="flow") for n in range(2)])
        task = await waiting(there, REPORTS)
        assert await here.change([Cancel(members[0].id)]) == 1
        assert await task
        (flow,) = await there.take(REPORTS, 1)
        assert await there.settle([Done(flow.lease)]) == []
        task = await waiting(there, REPORTS)
        assert await here.purge("a", "ready") == 1
        assert await task


async def test_a_change_for_many_wakes_all_of_them(heard: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        tasks = [await waiting(one, queue) for queue in "abcdef"]
        await other.enqueue([NewJob(queue) for queue in "abcdef"])
        assert all(await asyncio.gather(*tasks))


async def test_a_change_that_comes_right_after_another_is_heard(heard: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        tasks = [await waiting(one, queue) for queue in "abc"]
        for queue in "xyzabc":  # faster than PAUSE
            await other.enqueue([NewJob(queue)])
        assert all(await asyncio.gather(*tasks))


async def test_a_process_that_commits_all_the_time_does_not_keep_the_others_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PAUSE", LONG)
    monkeypatch.setattr(watch, "SLOW_POLL", LONG)
    async with two(tmp_path) as (one, other):
        changes = 0

        def changed() -> None:
            nonlocal changes
            changes += 1

        one._watch._changed = changed
        with one._watch.listening():
            for _ in range(20):
                await other.enqueue([NewJob("a")])
            assert changes == 1


async def test_a_change_from_before_the_wait_is_seen_by_its_first_look(heard: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        await dropped(await waiting(one, "a"))
        await other.enqueue([NewJob("a")])
        assert await one.wait(["a"], LONG)


async def test_our_own_commit_wakes_the_waits_for_its_queue(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, _):
        first, second = await waiting(one, "a"), await waiting(one, "b")
        await one.enqueue([NewJob("a")])
        assert await first
        assert not second.done()
        await dropped(second)


async def test_a_start_time_that_another_process_sets_is_kept(heard: str, tmp_path: Path) -> None:
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
        task = await waiting(one, "a")
        await one.enqueue([NewJob("a", delay=5)])
        await waiting(one, "b")  # by then the first one has looked again
        clock.advance(4.999)
        await waiting(one, "c")
        assert not task.done()
        clock.advance(0.001)
        assert await task


async def test_a_process_that_was_killed_before_it_could_tell_is_noticed_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SLOW_POLL", 0.02)
    async with two(tmp_path) as (one, other):
        other._writer._shared_file = str(tmp_path / "nowhere")
        task = await waiting(one, "a")
        await other.enqueue([NewJob("a")])
        assert await task


async def test_a_wait_that_was_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, _):
        for _ in range(50):
            await dropped(await waiting(one, "a"))
        assert not one._wakeups.sleepers
        assert not await one.wait(["a"], 0.005)


async def test_a_close_ends_every_wait(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    async with two(tmp_path) as (one, _):
        tasks = [await waiting(one, queue) for queue in "ab"]
        await one.close()
        for task in tasks:
            with pytest.raises(StorageClosed):
                await task
    assert set(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


async def test_waits_of_loops_that_have_ended_leave_no_descriptor(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, _):
        for _ in range(3):
            await asyncio.to_thread(lambda: asyncio.run(one.wait(["a"], 0.0)))
        assert len(one._watch._listeners) == 1
        await one.close()
        before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
        with pytest.raises(StorageClosed):
            await one.wait(["a"], LONG)
        assert set(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


async def test_a_wait_hears_that_the_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SLOW_POLL", 0.02)
    async with asyncio.timeout(30), await open_storage(f"sqlite:///{tmp_path}/q.db") as one:
        assert isinstance(one, SqliteStorage)
        task = await waiting(one, "a")
        (tmp_path / "q.db").rename(tmp_path / "gone.db")
        with pytest.raises(StorageUnavailable, match="removed or replaced"):
            await task


async def test_waits_of_two_event_loops_are_woken_each_in_its_own(heard: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        here = await waiting(one, "a")
        there = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(one.wait(["a"], LONG))))
        while len(one._wakeups.sleepers) < 2:
            await asyncio.sleep(0)
        await other.enqueue([NewJob("a")])
        assert await here
        assert await there
