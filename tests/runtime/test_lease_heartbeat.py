"""The lease heartbeat: leases that last while the worker's loop is blocked, and end when they should."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from tests.runtime.batches import Owner

from accoda import ManualClock, open_storage
from accoda.errors import RetryLater, StorageUnavailable
from accoda.model import ById, Done, Job, JobInfo, Lease, NewJob, Outcome, Refused, Remove
from accoda.runtime.batch import BatchRun
from accoda.runtime.lease_heartbeat import LeaseHeartbeat, beat, is_due
from accoda.storage.memory import MemoryStorage
from accoda.storage.protocol import Store

Open = Callable[[], Awaitable[Store]]


class Stops:
    """Stands for a runner: remembers which jobs were stopped, and in which thread."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.threads: set[threading.Thread] = set()
        self.told = asyncio.Event()

    def stop(self, batch: BatchRun, ids: Collection[int], error: BaseException) -> bool:
        self.ids |= set(ids)
        self.threads.add(threading.current_thread())
        self.told.set()
        return True


def block(seconds: float) -> None:
    """Let time pass without letting the loop run."""
    time.sleep(seconds)


async def take(store: Store, count: int, lease: float, queue: str = "q", owner: Owner | None = None) -> BatchRun:
    await store.enqueue([NewJob(queue) for _ in range(count)])
    jobs = await store.take(queue, count, lease=lease)
    batch = BatchRun(owner or Owner(Stops()), jobs, [None] * count)
    batch.lease = lease
    return batch


async def find(store: Store, id: int) -> JobInfo | None:
    return (await store.look(ById(id))).job


async def leave_open(store: Store) -> None:
    pass


@contextmanager
def running(open_store: Open, shortest: float = 60.0) -> Iterator[tuple[LeaseHeartbeat, set[BatchRun]]]:
    async def close(store: Store) -> None:
        if not isinstance(store, MemoryStorage):
            await store.close()

    batches: set[BatchRun] = set()
    heartbeat = LeaseHeartbeat(batches, lambda: shortest, open_store, close)
    heartbeat.start()
    try:
        yield heartbeat, batches
    finally:
        heartbeat.close()


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
        with running(open_store, 1.0) as (_, batches):
            batch = await take(store, 3, 1.0)
            batches.add(batch)
            block(3.0)
            assert await store.settle([Done(job.lease) for job in batch.taken]) == []


async def test_without_a_heartbeat_they_would_be_lost(tmp_path: Path) -> None:
    async with memory(tmp_path) as (store, _):
        batch = await take(store, 3, 0.05)
        block(0.06)
        assert len(await store.settle([Done(job.lease) for job in batch.taken])) == 3


@pytest.mark.parametrize("kind", [memory, sqlite])
async def test_a_job_whose_lease_is_lost_is_stopped_on_the_workers_loop(kind: Any, tmp_path: Path) -> None:
    stops = Stops()
    async with kind(tmp_path) as (store, open_store):
        with running(open_store, 1.6) as (_, batches):
            batch = await take(store, 3, 1.6, owner=Owner(stops))
            batches.add(batch)
            await store.change([Remove(batch[1].id)])
            await stops.told.wait()
    assert stops.ids == {batch[1].id} == batch.lost
    assert stops.threads == {threading.current_thread()}
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


def heartbeat_of(
    store: Store, on_lost: Callable[[list[Lease]], None] = lambda leases: None
) -> tuple[LeaseHeartbeat, set[BatchRun]]:
    """One that is not started: `run_once` is called by hand."""

    async def open_store() -> Store:
        return store

    batches: set[BatchRun] = set()
    return LeaseHeartbeat(batches, lambda: 60.0, open_store, leave_open, on_lost), batches


async def old(store: Store, count: int, lease: float = 60.0) -> BatchRun:
    """A batch whose leases began long ago."""
    batch = await take(store, count, lease)
    batch.extended_at = 0.0
    return batch


def ids(*batches: BatchRun) -> set[int]:
    return {job.id for batch in batches for job in batch.taken}


async def test_batches_of_the_same_lease_are_extended_in_one_call_and_young_ones_not_at_all() -> None:
    store = Recording()
    heartbeat, batches = heartbeat_of(store)
    one, two, other, young = await old(store, 2), await old(store, 2), await old(store, 2, 30.0), await old(store, 2)
    young.extended_at = 99.5
    batches.update((one, two, other, young))
    await heartbeat.run_once(100.0)
    assert sorted(store.extended, key=lambda call: call[1]) == [(ids(other), 30.0), (ids(one, two), 60.0)]
    store.extended.clear()
    await heartbeat.run_once(100.5)
    assert store.extended == [(ids(young), 60.0)]


async def test_a_lost_lease_and_a_new_one_of_the_same_job_are_told_apart() -> None:
    """A worker that lost a lease in an outage may take the job again before it learns of it."""
    clock = ManualClock()
    store, lost = MemoryStorage(clock), list[Lease]()

    async def open_store() -> Store:
        return store

    before = await old(store, 1)
    clock.advance(61)
    again = BatchRun(Owner(Stops()), await store.take("q", 1), [None])
    again.extended_at = 0.0
    for batches in ({before, again}, {again, before}):
        heartbeat = LeaseHeartbeat(batches, lambda: 60.0, open_store, leave_open, lost.extend)
        clock.advance(50)  # without an extension, it would end the second time
        await heartbeat.run_once(time.monotonic() + 100)
        before.extended_at = again.extended_at = 0.0
    await asyncio.sleep(0)
    assert before.taken[0].id == again.taken[0].id
    assert (before.lost, again.lost) == ({before.taken[0].id}, set())
    assert lost == [before.taken[0].lease]
    assert await store.settle([Done(again.taken[0].lease)]) == []


async def test_a_lease_that_an_outcome_on_its_way_may_have_ended_is_not_told_as_lost() -> None:
    store, lost = MemoryStorage(), list[Lease]()

    async def open_store() -> Store:
        return store

    settling, settled = await old(store, 1), await old(store, 2)
    heartbeat = LeaseHeartbeat({settling, settled}, lambda: 60.0, open_store, leave_open, lost.extend)
    await store.settle([Done(settling.taken[0].lease), Done(settled.taken[0].lease)])
    await store.change([Remove(settled.taken[1].id)])
    await heartbeat.run_once(100.0)
    settling.settling = True  # as the processor says before it sends the outcomes
    settled.settled.add(settled.taken[0].id)
    await asyncio.sleep(0)
    assert lost == [settled.taken[1].lease]


async def test_finished_jobs_keep_their_leases_until_they_are_settled() -> None:
    store = Recording()
    heartbeat, batches = heartbeat_of(store)
    batch = await old(store, 3)
    batches.add(batch)
    batch.done(batch[0])
    batch.settled.add(batch[1].id)
    batch.lost.add(batch[2].id)
    await heartbeat.run_once(100.0)
    assert store.extended == [({batch[0].id}, 60.0)]


async def test_leases_that_are_left_to_end_are_not_extended() -> None:
    store = Recording()
    heartbeat, batches = heartbeat_of(store)
    batch = await old(store, 1)
    batches.add(batch)
    batch.leases_end_at = 101.0
    await heartbeat.run_once(100.0)
    await heartbeat.run_once(102.0)
    assert len(store.extended) == 1


async def test_leases_that_are_not_renewed_are_lost_when_they_are_over() -> None:
    store, stops, told = Recording(), Stops(), list[Lease]()
    heartbeat, batches = heartbeat_of(store, told.extend)
    owner = Owner(stops)
    owner.renew = False
    batch = await take(store, 2, 60.0, owner=owner)
    batch.extended_at = 40.0
    batches.add(batch)
    await heartbeat.run_once(100.0)
    assert not batch.lost, "it has not begun"
    batch.began = 41.0
    await heartbeat.run_once(99.9)
    assert not batch.lost
    await heartbeat.run_once(100.0)
    await heartbeat.run_once(101.0)
    await asyncio.sleep(0)
    assert store.extended == [] and batch.lost == set(batch.ids()) == set(stops.ids)
    assert told == [job.lease for job in batch.taken], "once: these crashes are taken back"


async def test_a_batch_that_was_settled_meanwhile_has_lost_nothing() -> None:
    store, stops = Recording(), Stops()
    heartbeat, batches = heartbeat_of(store)
    batch = await take(store, 1, 60.0, owner=Owner(stops))
    batch.extended_at = 0.0
    batches.add(batch)
    await store.settle([Done(batch.taken[0].lease)])
    await heartbeat.run_once(100.0)  # refused
    batches.discard(batch)
    await asyncio.sleep(0)
    assert not stops.ids


def test_it_looks_each_second_or_each_quarter_of_the_shortest_lease() -> None:
    assert beat(30.0) == 1.0
    assert beat(2.0) == 0.5
    batch = BatchRun(Owner(lease=2.0), [], [])
    batch.extended_at = 10.0
    assert [is_due(batch, now) for now in (10.4, 10.5)] == [False, True]


async def test_it_keeps_a_lease_that_became_shorter_while_it_slept() -> None:
    store, shortest = Recording(), 60.0

    async def open_store() -> Store:
        return store

    batches: set[BatchRun] = set()
    heartbeat = LeaseHeartbeat(batches, lambda: shortest, open_store, leave_open)
    heartbeat.start()
    try:
        shortest = 1.0
        heartbeat.wake()
        batch = await take(store, 1, 1.0)
        batches.add(batch)
        block(2.0)
        assert await store.settle([Done(batch.taken[0].lease)]) == []
    finally:
        heartbeat.close()


async def test_a_store_that_goes_away_and_returns_is_opened_anew(caplog: pytest.LogCaptureFixture) -> None:
    store = Recording()
    opened = 0

    async def open_store() -> Store:
        nonlocal opened
        opened += 1
        return store

    heartbeat = LeaseHeartbeat({await old(store, 1)}, lambda: 60.0, open_store, leave_open)
    store.fail = StorageUnavailable("gone fishing")
    with caplog.at_level(logging.WARNING, "accoda.leases"):
        await heartbeat.run_once(100.0)
        await heartbeat.run_once(100.0)  # too soon
        await heartbeat.run_once(100.25)
    assert len(store.extended) == 2
    assert caplog.text.count("StorageUnavailable: gone fishing") == 2
    store.fail = None
    await heartbeat.run_once(101.0)
    await heartbeat.run_once(102.0)
    assert len(store.extended) == 4
    assert opened == 3


async def test_a_server_that_is_restarted_costs_no_lease() -> None:
    with need(lambda: RedisServer("always")) as server:
        async with await open_storage(server.url) as store:
            with running(lambda: open_storage(server.url), 3.0) as (_, batches):
                batch = await take(store, 2, 3.0)
                batches.add(batch)
                block(0.8)
                server.kill()
                server.start()
                block(2.8)
                assert not batch.lost
                assert await store.settle([Done(job.lease) for job in batch.taken]) == []


# -- release_all


@pytest.mark.parametrize("kind", [memory, sqlite])
async def test_everything_is_given_back_from_another_thread_while_the_loop_is_blocked(
    kind: Any, tmp_path: Path
) -> None:
    stops = Stops()
    async with kind(tmp_path) as (store, open_store):
        with running(open_store) as (heartbeat, batches):
            batch = await take(store, 4, 60.0, owner=Owner(stops))
            other = await take(store, 1, 60.0, "other", Owner(stops))
            batches.update((batch, other))
            batch.done(batch[0])
            batch.bury(batch[1], "enough")
            batch.retry(batch[2], delay=500)
            answers: list[bool] = []
            thread = threading.Thread(target=lambda: answers.append(heartbeat.release_all("stopped", 10)))
            thread.start()
            thread.join()  # this loop does nothing meanwhile
            assert answers == [True]
            info = [await find(store, job.id) for job in (*batch.taken, *other.taken)]
            assert [one and one.state for one in info] == [None, "dead", "delayed", "ready", "ready"]
            assert [one and (one.reason, one.tries) for one in info[3:]] == [("stopped", 0), ("stopped", 0)]
            refused = await store.settle([Done(job.lease) for job in (*batch.taken, *other.taken)])
            assert len(refused) == 5, "a second outcome for the same lease changes nothing"
            assert heartbeat.release_all("stopped", 10), "nothing is left to release"
        await asyncio.sleep(0)  # now the loop runs again, and the handlers are stopped
        assert stops.ids == ids(batch, other)
    assert batch[3].lost


async def test_a_release_that_is_not_done_in_time_says_so() -> None:
    store = Recording()

    async def never() -> Store:
        await asyncio.Event().wait()
        return store

    with running(never) as (heartbeat, batches):
        batches.add(await take(store, 1, 60.0))
        assert not heartbeat.release_all("stopped", 0.05)


async def test_a_release_is_repeated_until_the_store_answers() -> None:
    store = Recording()
    failures = [StorageUnavailable("not yet"), StorageUnavailable("nor now")]

    async def open_store() -> Store:
        if failures:
            raise failures.pop()
        return store

    with running(open_store) as (heartbeat, batches):
        batch = await take(store, 1, 60.0)
        batches.add(batch)
        assert heartbeat.release_all("stopped", 10)
        info = await find(store, batch[0].id)
        assert info is not None
        assert info.state == "ready"


async def test_an_outcome_that_cannot_be_decided_goes_back_with_the_reason() -> None:
    class Undecided(BatchRun):
        def decide(self, job: Job) -> Outcome:
            raise ValueError("no such moment")

    store = Recording()

    async def open_store() -> Store:
        return store

    with running(open_store) as (heartbeat, batches):
        taken = await take(store, 1, 60.0)
        batch = Undecided(taken.owner, taken.taken, [None])
        batches.add(batch)
        batch.fail(batch[0], RetryLater("later"))
        assert heartbeat.release_all("stopped", 10)
        info = await find(store, batch[0].id)
        assert info is not None
        assert info.reason == "ValueError: no such moment"


async def test_it_starts_and_closes_twice_without_harm_and_releases_nothing_after() -> None:
    store = Recording()
    heartbeat, batches = heartbeat_of(store)
    batches.add(await take(store, 1, 60.0))
    assert not heartbeat.release_all("not started", 1)
    heartbeat.start()
    heartbeat.start()
    heartbeat.close()
    heartbeat.close()
    assert not heartbeat.release_all("closed", 1)
