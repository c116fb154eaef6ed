"""`extend`, `waiters` and `rerank`."""

from __future__ import annotations

import pytest

from accoda.model import Bury, Lease, NewJob, Rank, Retry
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    close_to,
    finish,
    info_of,
    lost,
    need_exact,
    state_of,
    take_ids,
    take_one,
)
from accoda.testing.world import World


class TestExtend(Suite):
    async def test_counts_from_now(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        await world.advance(6)
        assert await store.extend([job.lease], 10) == []
        assert close_to(world, (await info_of(store, id)).lease_until, await world.now() + 10_000)
        await world.advance(9)
        assert await take_ids(store) == []
        await finish(store, job)

    async def test_can_be_done_many_times(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        for _ in range(10):
            await world.advance(9)
            assert await store.extend([job.lease], 10) == []
        assert (await info_of(store, id)).attempts == 0
        await world.advance(10)
        assert (await take_one(store)).attempts == 1

    async def test_can_shorten_a_lease(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=HOUR)
        assert await store.extend([job.lease], 5) == []
        await world.advance(5)
        assert (await take_one(store)).id == id

    async def test_gives_back_the_lost_and_extends_the_others(self, store: Store, world: World) -> None:
        await add(store, NewJob(Q), NewJob(Q), NewJob(Q))
        one, two, three = await store.take(Q, 3, lease=10)
        await finish(store, one)
        await store.settle([Retry(two.lease)])
        wrong = [Lease("other", three.id, 0), Lease(Q, three.id, 1), Lease(Q, 10**6, 0)]
        assert await store.extend([one.lease, two.lease, three.lease, *wrong], 60) == lost(one.lease, two.lease, *wrong)
        await world.advance(30)
        assert await state_of(store, three.id) == "taken"

    async def test_of_the_same_lease_twice_is_accepted_twice(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        job = await take_one(store)
        assert await store.extend([job.lease, job.lease], 60) == []

    async def test_of_nothing_does_nothing(self, store: Store) -> None:
        assert await store.extend([], 60) == []

    async def test_at_the_last_millisecond_is_in_time(self, store: Store, world: World) -> None:
        need_exact(world)
        await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        await world.advance(9.999)
        assert await store.extend([job.lease], 10) == []
        await world.advance(10)
        assert await store.extend([job.lease], 10) == lost(job.lease)


class TestWaiters(Suite):
    async def test_come_in_the_order_in_which_they_joined(self, store: Store, world: World) -> None:
        await add_one(store, NewJob(Q, key="k", waiter=b"c"))
        await store.enqueue([NewJob(Q, key="k", waiter=b"a", on_duplicate="attach")])
        job = await take_one(store, lease=10)
        await store.enqueue([NewJob(Q, key="k", waiter=b"b", on_duplicate="attach")])
        assert await store.waiters(job.lease) == [b"c", b"a", b"b"]
        await world.advance(10)
        again = await take_one(store)
        await store.enqueue([NewJob(Q, key="k", waiter=b"0", on_duplicate="attach")])
        assert await store.waiters(again.lease) == [b"c", b"a", b"b", b"0"]
        assert again.waiters == 3

    async def test_of_a_job_without_any_are_none(self, store: Store) -> None:
        await add(store, NewJob(Q), NewJob(Q, key="k"))
        for job in await store.take(Q, 2):
            assert await store.waiters(job.lease) == []

    async def test_of_a_lost_lease_are_none(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, key="k", waiter=b"w"))
        assert await store.waiters(Lease(Q, id, 0)) == [], "it is not taken yet"
        job = await take_one(store)
        assert await store.waiters(Lease("other", id, 0)) == []
        assert await store.waiters(Lease(Q, id, 1)) == []
        assert await store.waiters(job.lease) == [b"w"]
        await store.settle([Bury(job.lease, "x")])
        assert await store.waiters(job.lease) == []

    async def test_of_different_jobs_do_not_mix(self, store: Store) -> None:
        await add(
            store,
            NewJob(Q, key="k", waiter=b"1"),
            NewJob(Q, key="l", waiter=b"2"),
            NewJob("r", key="k", waiter=b"3"),
        )
        jobs = [*await store.take(Q, 2), await take_one(store, "r")]
        assert [await store.waiters(job.lease) for job in jobs] == [[b"1"], [b"2"], [b"3"]]


class TestRerank(Suite):
    async def test_changes_the_order_of_waiting_jobs(self, store: Store) -> None:
        a, b, c = await add(store, NewJob(Q), NewJob(Q), NewJob(Q))
        assert await store.rerank([Rank(Q, c, -1), Rank(Q, a, 5.5)]) == 2
        assert [(job.id, job.rank) for job in await store.take(Q, 9)] == [(c, -1), (b, 0), (a, 5.5)]

    async def test_of_a_delayed_job_counts_when_it_comes_due(self, store: Store, world: World) -> None:
        ready, delayed = await add(store, NewJob(Q), NewJob(Q, rank=9, delay=10))
        assert await store.rerank([Rank(Q, delayed, -1)]) == 1
        assert await state_of(store, delayed) == "delayed"
        assert await take_ids(store, count=0) == []
        await world.advance(10)
        assert await take_ids(store) == [delayed, ready]

    async def test_leaves_jobs_alone_that_do_not_wait(self, store: Store) -> None:
        taken, dead, done = await add(store, NewJob(Q, rank=1), NewJob(Q, rank=2), NewJob(Q, rank=3, keep_for=60))
        _, second, third = await store.take(Q, 3)
        await store.settle([Bury(second.lease, "x")])
        await finish(store, third)
        assert await store.rerank([Rank(Q, id, -7) for id in (taken, dead, done, 10**6)]) == 0
        assert [(await info_of(store, id)).rank for id in (taken, dead, done)] == [1, 2, 3]

    async def test_of_a_wrong_queue_is_not_applied(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        assert await store.rerank([Rank("other", id, -1)]) == 0
        assert (await info_of(store, id)).rank == 0

    @pytest.mark.parametrize(("seen", "applied"), [(None, 1), (0, 0), (1, 0), (2, 1), (3, 1)])
    async def test_is_applied_only_if_no_more_wait_than_were_seen(
        self, store: Store, seen: int | None, applied: int
    ) -> None:
        id, _ = await add(
            store,
            NewJob(Q, key="k", waiter=b"1"),
            NewJob(Q, key="k", waiter=b"2", on_duplicate="attach"),
        )
        assert await store.rerank([Rank(Q, id, 7, waiters=seen)]) == applied
        assert (await info_of(store, id)).rank == (7 if applied else 0)

    async def test_of_the_same_job_twice_ends_with_the_last(self, store: Store) -> None:
        first, second = await add(store, NewJob(Q), NewJob(Q))
        assert await store.rerank([Rank(Q, first, 5), Rank(Q, first, -5), Rank(Q, first, 1)]) == 3
        assert [(job.id, job.rank) for job in await store.take(Q, 9)] == [(second, 0), (first, 1)]

    async def test_to_and_fro_hands_the_job_out_once(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, rank=1))
        for rank in (2, 1, 3, 1):
            await store.rerank([Rank(Q, id, rank)])
        assert await take_ids(store) == [id]

    async def test_sees_a_lease_that_ended(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        await take_one(store, lease=10)
        await world.advance(10)
        assert await store.rerank([Rank(Q, id, 3)]) == 1
        assert (await take_one(store)).rank == 3

    async def test_of_nothing_changes_nothing(self, store: Store) -> None:
        assert await store.rerank([]) == 0
