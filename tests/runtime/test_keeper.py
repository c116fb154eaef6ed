"""The keeper: leases that last while the worker's loop is blocked, and end when they should."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from accoda import open_storage
from accoda.app import App
from accoda.errors import RetryLater, StorageUnavailable
from accoda.model import Done, NewJob, Outcome, Refused
from accoda.retry import Limits, Result, decide
from accoda.runtime.batch import Batch, Running
from accoda.runtime.keeper import Held, Keeper, beat, is_due
from accoda.storage.memory import MemoryStorage
from accoda.storage.protocol import Store
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import RedisServer

Open = Callable[[], Awaitable[Store]]


def by_rule(job: Running[Any], result: Result) -> Outcome:
    return decide(job.job, result, Limits())


def block(seconds: float) -> None:
    """Let time pass without letting the loop run."""
    time.sleep(seconds)


def nobody(ids: object) -> None:
    raise AssertionError(f"{ids} were lost")


async def take(store: Store, count: int, lease: float, queue: str = "q") -> Batch[Any]:
    await store.enqueue([NewJob(queue) for _ in range(count)])
    jobs = await store.take(queue, count, lease=lease)
    return Batch(queue, jobs, [None] * count, App("memory://").new_job)


@contextmanager
def running(open_store: Open) -> Iterator[Keeper]:
    async def close(store: Store) -> None:
        if not isinstance(store, MemoryStorage):
            await store.close()

    keeper = Keeper(open_store, close, asyncio.get_running_loop())
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.close()


@asynccontextmanager
async def memory(tmp_path: Path) -> AsyncIterator[tuple[Store, Open]]:
    async with MemoryStorage() as store:

        async def same() -> Store:
            return store

        yield store, same


@asynccontextmanager
async def sqlite(tmp_path: Path) -> AsyncIterator[tuple[Store, Open]]:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with await open_storage(url) as store:
        yield store, lambda: open_storage(url)


@asynccontextmanager
async def redis(tmp_path: Path) -> AsyncIterator[tuple[Store, Open]]:
    with need(RedisServer) as server:
        async with await open_storage(server.url) as store:
            yield store, lambda: open_storage(server.url)


@pytest.mark.parametrize("kind", [memory, sqlite, redis])
async def test_a_loop_that_is_blocked_for_three_leases_keeps_its_jobs(kind: Any, tmp_path: Path) -> None:
    async with kind(tmp_path) as (store, open_store):
        with running(open_store) as keeper:
            batch = await take(store, 3, 1.0)
            keeper.hold(Held(batch, 1.0, nobody, by_rule))
            block(3.0)
            assert await store.settle([Done(job.job.lease) for job in batch]) == []


async def test_without_a_keeper_they_would_be_lost(tmp_path: Path) -> None:
    async with memory(tmp_path) as (store, _):
        batch = await take(store, 3, 0.05)
        block(0.06)
        assert len(await store.settle([Done(job.job.lease) for job in batch])) == 3


@pytest.mark.parametrize("kind", [memory, sqlite])
async def test_who_loses_a_lease_is_told_on_the_workers_loop(kind: Any, tmp_path: Path) -> None:
    told: asyncio.Future[tuple[Any, threading.Thread]] = asyncio.get_running_loop().create_future()
    async with kind(tmp_path) as (store, open_store):
        with running(open_store) as keeper:
            batch = await take(store, 3, 1.6)
            keeper.hold(Held(batch, 1.6, lambda ids: told.set_result((ids, threading.current_thread())), by_rule))
            await store.remove([batch[1].id])
            ids, thread = await told
    assert set(ids) == {batch[1].id} == batch.lost
    assert thread is threading.current_thread()
    assert batch[1].lost
    assert not batch[0].lost


class Recording(MemoryStorage):
    """Remembers what is asked of it, and can be told to fail or to hang."""

    def __init__(self) -> None:
        super().__init__()
        self.extended: list[tuple[set[int], float]] = []
        self.fail: BaseException | None = None

    async def extend(self, leases: Any, lease: float) -> list[Refused]:
        self.extended.append(({one.id for one in leases}, lease))
        if self.fail is not None:
            raise self.fail
        return await super().extend(leases, lease)


def keeper_of(store: Store) -> Keeper:
    """One that is not started: `run_once` is called by hand."""

    async def open_store() -> Store:
        return store

    async def leave_open(store: Store) -> None:
        pass

    return Keeper(open_store, leave_open, asyncio.get_running_loop())


def hold(keeper: Keeper, batch: Batch[Any], lease: float = 60.0) -> Held:
    held = Held(batch, lease, nobody, by_rule)
    held.extended_at = 0.0
    keeper.hold(held)
    return held


async def test_batches_of_the_same_lease_are_extended_in_one_call_and_young_ones_not_at_all() -> None:
    store = Recording()
    keeper = keeper_of(store)
    one, two, other, young = [await take(store, 2, 60.0) for _ in range(4)]
    hold(keeper, one)
    hold(keeper, two)
    hold(keeper, other, 30.0)
    hold(keeper, young).extended_at = 99.5
    await keeper.run_once(100.0)
    assert sorted(store.extended, key=lambda call: call[1]) == [
        ({job.id for job in other}, 30.0),
        ({job.id for job in (*one, *two)}, 60.0),
    ]
    store.extended.clear()
    await keeper.run_once(100.5)
    assert store.extended == [({job.id for job in young}, 60.0)]


async def test_finished_jobs_keep_their_leases_until_they_are_settled() -> None:
    store = Recording()
    keeper = keeper_of(store)
    batch = await take(store, 3, 60.0)
    hold(keeper, batch)
    batch.done(batch[0])
    batch.settled.add(batch[1].id)
    batch.lost.add(batch[2].id)
    await keeper.run_once(100.0)
    assert store.extended == [({batch[0].id}, 60.0)]


async def test_what_is_let_go_is_not_extended() -> None:
    store = Recording()
    keeper = keeper_of(store)
    held = hold(keeper, await take(store, 1, 60.0))
    keeper.let_go(held)
    await keeper.run_once(100.0)
    assert store.extended == []


async def test_past_its_deadline_a_lease_is_left_to_end() -> None:
    store = Recording()
    keeper = keeper_of(store)
    held = hold(keeper, await take(store, 1, 60.0))
    held.deadline = 101.0
    await keeper.run_once(100.0)
    await keeper.run_once(102.0)
    assert len(store.extended) == 1


async def test_a_batch_that_was_settled_meanwhile_has_lost_nothing() -> None:
    store = Recording()
    keeper = keeper_of(store)
    batch = await take(store, 1, 60.0)
    held = hold(keeper, batch)
    await store.settle([Done(batch[0].job.lease)])
    await keeper.run_once(100.0)  # refused
    keeper.let_go(held)
    await asyncio.sleep(0)  # `nobody` is not called


def test_it_looks_each_second_or_each_quarter_of_the_shortest_lease() -> None:
    assert beat([60.0, 30.0]) == 1.0
    assert beat([60.0, 2.0]) == 0.5
    held = Held(Batch("q", [], [], App("memory://").new_job), 2.0, nobody, by_rule)
    held.extended_at = 10.0
    assert [is_due(held, now) for now in (10.4, 10.5)] == [False, True]


async def test_a_short_lease_wakes_a_keeper_that_sleeps_for_a_long_one() -> None:
    store = Recording()
    with running(keeper_of(store)._open_store) as keeper:
        keeper.hold(Held(await take(store, 1, 60.0), 60.0, nobody, by_rule))
        short = await take(store, 1, 1.0)
        keeper.hold(Held(short, 1.0, nobody, by_rule))
        block(2.0)
        assert await store.settle([Done(short[0].job.lease)]) == []


async def test_a_store_that_goes_away_and_returns_is_opened_anew(caplog: pytest.LogCaptureFixture) -> None:
    store = Recording()
    opened = 0

    async def open_store() -> Store:
        nonlocal opened
        opened += 1
        return store

    async def leave_open(store: Store) -> None:
        pass

    keeper = Keeper(open_store, leave_open, asyncio.get_running_loop())
    hold(keeper, await take(store, 1, 60.0))
    store.fail = StorageUnavailable("gone fishing")
    with caplog.at_level(logging.WARNING, "accoda.keeper"):
        await keeper.run_once(100.0)
        await keeper.run_once(100.0)  # too soon
        await keeper.run_once(100.25)
    assert len(store.extended) == 2
    assert caplog.text.count("StorageUnavailable: gone fishing") == 2
    store.fail = None
    await keeper.run_once(101.0)
    await keeper.run_once(102.0)
    assert len(store.extended) == 4
    assert opened == 3


async def test_a_server_that_is_restarted_costs_no_lease() -> None:
    with need(lambda: RedisServer("always")) as server:
        async with await open_storage(server.url) as store:
            with running(lambda: open_storage(server.url)) as keeper:
                batch = await take(store, 2, 3.0)
                keeper.hold(Held(batch, 3.0, nobody, by_rule))
                block(0.8)
                server.kill()
                server.start()
                block(2.8)
                assert not batch.lost
                assert await store.settle([Done(job.job.lease) for job in batch]) == []


# -- release_all


@pytest.mark.parametrize("kind", [memory, sqlite])
async def test_everything_is_given_back_from_another_thread_while_the_loop_is_blocked(
    kind: Any, tmp_path: Path
) -> None:
    told: list[Any] = []
    async with kind(tmp_path) as (store, open_store):
        with running(open_store) as keeper:
            batch = await take(store, 4, 60.0)
            other = await take(store, 1, 60.0, "other")
            keeper.hold(Held(batch, 60.0, told.append, by_rule))
            keeper.hold(Held(other, 60.0, told.append, by_rule))
            batch.done(batch[0])
            batch.bury(batch[1], "enough")
            batch.retry(batch[2], delay=500)
            answers: list[bool] = []
            thread = threading.Thread(target=lambda: answers.append(keeper.release_all("stopped", 10)))
            thread.start()
            thread.join()  # this loop does nothing meanwhile
            assert answers == [True]
            info = [await store.find(job.id) for job in (*batch, *other)]
            assert [one and one.state for one in info] == [None, "dead", "delayed", "ready", "ready"]
            assert [one and one.reason for one in info[3:]] == ["stopped", "stopped"]
            refused = await store.settle([Done(job.job.lease) for job in (*batch, *other)])
            assert len(refused) == 5, "a second outcome for the same lease changes nothing"
            assert keeper.release_all("stopped", 10), "nothing is left to release"
        await asyncio.sleep(0)  # now the loop runs again, and its handlers are told
        assert sum(len(ids) for ids in told) == 5
    assert batch[3].lost


async def test_a_release_that_is_not_done_in_time_says_so() -> None:
    store = Recording()

    async def never() -> Store:
        await asyncio.Event().wait()
        return store

    with running(never) as keeper:
        keeper.hold(Held(await take(store, 1, 60.0), 60.0, nobody, by_rule))
        assert not keeper.release_all("stopped", 0.05)


async def test_a_release_is_repeated_until_the_store_answers() -> None:
    store = Recording()
    failures = [StorageUnavailable("not yet"), StorageUnavailable("nor now")]

    async def open_store() -> Store:
        if failures:
            raise failures.pop()
        return store

    with running(open_store) as keeper:
        batch = await take(store, 1, 60.0)
        keeper.hold(Held(batch, 60.0, lambda ids: None, by_rule))
        assert keeper.release_all("stopped", 10)
        info = await store.find(batch[0].id)
        assert info is not None
        assert info.state == "ready"


async def test_an_outcome_that_cannot_be_decided_goes_back_with_the_reason() -> None:
    store = Recording()

    def broken(job: Running[Any], result: Result) -> Outcome:
        raise ValueError("no such moment")

    with running(keeper_of(store)._open_store) as keeper:
        batch = await take(store, 1, 60.0)
        keeper.hold(Held(batch, 60.0, lambda ids: None, broken))
        batch.fail(batch[0], RetryLater("later"))
        assert keeper.release_all("stopped", 10)
        info = await store.find(batch[0].id)
        assert info is not None
        assert info.reason == "ValueError: no such moment"


async def test_it_starts_and_closes_twice_without_harm_and_releases_nothing_after() -> None:
    store = Recording()
    keeper = keeper_of(store)
    batch = await take(store, 1, 60.0)
    keeper.hold(Held(batch, 60.0, nobody, by_rule))
    assert not keeper.release_all("not started", 1)
    keeper.start()
    keeper.start()
    keeper.close()
    keeper.close()
    assert not keeper.release_all("closed", 1)
    keeper.hold(Held(batch, 0.1, nobody, by_rule))


async def test_an_idle_keeper_sleeps_and_a_busy_one_is_not_rung_for_each_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Recording()
    rings = 0
    ring = Keeper._ring

    def count(keeper: Keeper) -> None:
        nonlocal rings
        rings += 1
        ring(keeper)

    monkeypatch.setattr(Keeper, "_ring", count)
    batch = Batch("q", [], [], App("memory://").new_job)
    with running(keeper_of(store)._open_store) as keeper:
        keeper.hold(Held(batch, 60.0, nobody, by_rule))
        while keeper._covers > 60.0:
            await asyncio.sleep(0.001)
        before = rings
        for _ in range(1000):
            held = Held(batch, 60.0, nobody, by_rule)
            keeper.hold(held)
            keeper.let_go(held)
        assert rings == before
