"""Damaged records in Tarantool: they stop nobody and end as dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from random import Random

import pytest
import pytest_asyncio

from accoda import Done, ManualClock, NewJob, open_storage
from accoda.storage.protocol import Store
from accoda.testing.damage.survival import REASON, survive
from accoda.testing.servers.pytest import need
from accoda.testing.servers.tarantool import TarantoolServer, administer, empty

Q = "q"
NOW = 1_800_000_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[TarantoolServer]:
    with need(TarantoolServer) as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest_asyncio.fixture
async def store(server: TarantoolServer, clock: ManualClock) -> AsyncIterator[Store]:
    async with await open_storage(server.url, clock=clock) as store:
        await empty(server.url)
        yield store


@pytest.mark.parametrize("seed", range(3))
async def test_thousands_of_damaged_records_lose_no_good_job_and_raise_nothing(
    store: Store, clock: ManualClock, seed: int
) -> None:
    spoiled, left = await survive(store, clock, Random(seed), 1200)
    assert spoiled > 800
    assert len([job for job in left if (job.reason or "").startswith(REASON)]) > 400


CHANGES = ["'data', {1, 2}", "'data', 7", "'rank', 1/0", "20, 'x'", "'keep_for', 0/0", "'worker', '\\xff'"]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_job_that_cannot_be_read_is_dead_and_the_next_is_given(
    server: TarantoolServer, store: Store, clock: ManualClock, change: str
) -> None:
    bad, good = [answer.id for answer in await store.enqueue([NewJob(Q, b"bad", delay=1), NewJob(Q, b"good")])]
    await administer(server.url, f"box.space.accoda_jobs:update({bad}, {{{{'=', {change}}}}}) return 0")
    clock.advance(1)
    (job,) = await store.take(Q, 2)
    assert job.id == good
    (dead,) = await store.browse(Q, "dead")
    assert (dead.id, dead.ended_at) == (bad, NOW + 1000)
    assert dead.reason is not None and dead.reason.startswith(REASON)
    stats = (await store.stats()).queues[Q]
    assert (stats.ready, stats.taken, stats.dead, stats.delayed) == (0, 1, 1, 0)
    assert await store.remove([bad]) == 1


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("change", [*CHANGES, "'rank', 0/0", "'reason', '\\xff'"])
async def test_a_look_sets_aside_what_cannot_be_read(
    server: TarantoolServer, store: Store, change: str, key: str | None
) -> None:
    jobs = [NewJob(Q, b"bad", key="k", waiter=b"w"), NewJob(Q, b"good")]
    bad, good = [answer.id for answer in await store.enqueue(jobs)]
    await administer(server.url, f"box.space.accoda_jobs:update({bad}, {{{{'=', {change}}}}}) return 0")
    seen = await store.peek(Q, key, after=0)
    assert (seen.job and seen.job.id, seen.waiters) == (good if key is None else None, ())
    (dead,) = await store.browse(Q, "dead")
    assert dead.id == bad
    assert dead.reason is not None and dead.reason.startswith(REASON)
    assert not await store.drop(Q, bad, 9)
    assert (await store.stats()).queues[Q].ready == 1


async def test_a_damaged_waiter_is_still_one_and_a_missing_one_hides_no_other(
    server: TarantoolServer, store: Store
) -> None:
    names = [b"%d" % n for n in range(5)]
    for key in ("k", "other"):
        await store.enqueue([NewJob(Q, key=key, on_duplicate="attach", waiter=name) for name in names])
    (job,) = await store.take(Q, 1)
    spoil = f"local w = box.space.accoda_waiters w:delete({{{job.id}, 3}}) w:replace({{{job.id}, 2, 7}}) return 0"
    await administer(server.url, spoil)
    assert await store.waiters(job.lease) == [b"0", b"\x07", b"3", b"4"]
    assert (await store.peek(Q, "k", after=1)).waiters == (b"\x07", b"3", b"4")
    assert (await store.peek(Q, "k", after=4)).waiters == (b"4",)
    assert (await store.peek(Q, "other", after=4)).waiters == (b"4",)


async def test_wrong_counts_neither_stop_a_job_nor_keep_anybody_awake(
    server: TarantoolServer, store: Store, clock: ManualClock
) -> None:
    await store.enqueue([NewJob(Q)])
    (job,) = await store.take(Q, 1, lease=5)
    wrong = "{{'=', 'taken', 0}, {'=', 'ready', 9}, {'=', 'dead', 5}}"
    await administer(server.url, f"box.space.accoda_queues:update(1, {wrong}) return 0")
    assert not await store.wait([Q], 0)
    assert await store.take(Q, 1) == []
    clock.advance(5)
    assert await store.wait([Q], 0)
    (again,) = await store.take(Q, 1)
    assert (again.id, again.attempts) == (job.id, 1)
    assert await store.settle([Done(again.lease)]) == []
    assert (await store.stats()).queues[Q].total == 0


async def test_a_key_that_is_held_by_nobody_is_free(server: TarantoolServer, store: Store) -> None:
    await store.enqueue([NewJob(Q)])
    await administer(server.url, "box.space.accoda_keys:replace({1, 'k', 77777}) return 0")
    (answer,) = await store.enqueue([NewJob(Q, key="k", on_duplicate="attach", waiter=b"w")])
    assert answer.what == "created"


async def test_ids_go_on_above_those_that_are_there(server: TarantoolServer, store: Store) -> None:
    (first,) = await store.enqueue([NewJob(Q)])
    await administer(server.url, "box.space.accoda_numbers:delete('last_id') return 0")
    (second,) = await store.enqueue([NewJob(Q)])
    assert second.id > first.id
