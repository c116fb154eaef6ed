"""`enqueue`: what is stored, in which state and order, and all or nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest

from accoda.errors import InvalidInput
from accoda.model import NewJob, Remove
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    Q,
    Suite,
    add,
    add_one,
    close_to,
    info_of,
    need_exact,
    state_of,
    stats_of,
    take_ids,
    take_one,
)
from accoda.testing.store_fixture import StoreFixture

RANKS = [-1e300, -1e17, -2.5, -0.0, 0.0, 5e-324, 0.1, 1, 2**31, 2**53, 2**63, 1e300, 10**300]


class TestEnqueue(Suite):
    async def test_gives_one_answer_for_each_job_in_order(self, store: Store) -> None:
        answers = await store.enqueue([NewJob(Q, b"1"), NewJob("other", b"2"), NewJob(Q, b"3")])
        assert [answer.what for answer in answers] == ["created"] * 3
        assert [(await info_of(store, answer.id)).data for answer in answers] == [b"1", b"2", b"3"]

    async def test_of_nothing_does_nothing(self, store: Store) -> None:
        assert await store.enqueue([]) == []

    async def test_gives_ids_that_grow_and_are_never_given_again(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob("other"), NewJob(Q))
        await store.change([Remove(id) for id in ids])
        ids += await add(store, NewJob(Q), NewJob("other"))
        assert ids == sorted(set(ids))
        assert ids[0] > 0

    async def test_keeps_every_field(self, store: Store, fixture: StoreFixture) -> None:
        new = NewJob(Q, b"data", rank=2.5, delay=90, cost=7, key="k", waiter=b"w", keep_for=30)
        info = await info_of(store, await add_one(store, new))
        now = await fixture.now()
        assert (info.queue, info.state, info.data, info.rank, info.cost) == (Q, "delayed", b"data", 2.5, 7)
        assert (info.key, info.waiters, info.keep_for, info.attempts) == ("k", 1, 30, 0)
        assert close_to(fixture, info.created_at, now)
        assert close_to(fixture, info.start_time, now + 90_000)
        assert (info.prev_start_time, info.lease_until, info.ended_at, info.result) == (None, None, None, None)

    async def test_makes_a_job_ready_at_once(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        info = await info_of(store, id)
        assert info.state == "ready"
        assert close_to(fixture, info.start_time, await fixture.now())
        assert await take_ids(store) == [id]

    @pytest.mark.parametrize("bad", [None, "q", {"queue": "q"}, 7])
    async def test_stores_none_of_the_jobs_if_one_is_no_job(self, store: Store, bad: object) -> None:
        with pytest.raises(InvalidInput):
            await store.enqueue([NewJob(Q, key="k"), cast(Any, bad), NewJob(Q)])
        assert (await stats_of(store)).total == 0
        assert [answer.what for answer in await store.enqueue([NewJob(Q, key="k")])] == ["created"]

    async def test_changes_no_earlier_job_if_one_of_the_new_is_no_job(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, b"old", key="k", waiter=b"w"))
        before = await info_of(store, id)
        with pytest.raises(InvalidInput):
            await store.enqueue([NewJob(Q, b"new", key="k", on_duplicate="replace", waiter=b"v"), cast(Any, None)])
        assert await info_of(store, id) == before

    async def test_takes_many_jobs_in_one_call(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, str(n).encode(), rank=n % 7) for n in range(2_000)))
        assert len(set(ids)) == 2_000
        assert (await stats_of(store)).ready == 2_000
        taken = await store.take(Q, 2_000)
        assert [job.data for job in taken] == [str(n).encode() for n in sorted(range(2_000), key=lambda n: n % 7)]


class TestStartTime(Suite):
    async def test_a_delayed_job_is_not_handed_out_before_its_time(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, delay=30))
        assert await take_ids(store) == []
        await fixture.advance(29)
        assert await state_of(store, id) == "delayed"
        assert await take_ids(store) == []
        await fixture.advance(1)
        assert await take_ids(store) == [id]

    async def test_a_delay_ends_to_the_millisecond(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        id = await add_one(store, NewJob(Q, delay=1.001))  # as a product of floats this is a little less than 1001 ms
        await fixture.advance(1)
        assert await state_of(store, id) == "delayed"
        assert await take_ids(store) == []
        await fixture.advance(0.001)
        assert await state_of(store, id) == "ready"
        assert await take_ids(store) == [id]

    async def test_a_start_moment_is_kept(self, store: Store, fixture: StoreFixture) -> None:
        start = await fixture.now() + 45_000
        id = await add_one(store, NewJob(Q, start_at=start))
        assert (await info_of(store, id)).start_time == start
        assert await take_ids(store) == []
        await fixture.advance(45)
        assert (await take_one(store)).start_time == start

    @pytest.mark.parametrize("back", [0, 1, 10_000_000])
    async def test_a_start_moment_in_the_past_is_now(self, store: Store, fixture: StoreFixture, back: int) -> None:
        now = await fixture.now()
        id = await add_one(store, NewJob(Q, start_at=now - back))
        info = await info_of(store, id)
        assert info.state == "ready"
        assert close_to(fixture, info.start_time, now)

    async def test_a_start_moment_at_the_epoch_is_now(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, start_at=0))
        assert close_to(fixture, (await info_of(store, id)).start_time, await fixture.now())
        assert await take_ids(store) == [id]

    async def test_a_delay_of_zero_is_no_delay(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, delay=0))
        assert await take_ids(store) == [id]

    async def test_the_farthest_moment_can_be_stored(self, store: Store, fixture: StoreFixture) -> None:
        far = await add_one(store, NewJob(Q, start_at=1 << 53))
        farther = await add_one(store, NewJob(Q, delay=(1 << 53) / 1000))
        await fixture.advance(1_000)
        assert (await info_of(store, far)).start_time == 1 << 53
        assert await state_of(store, farther) == "delayed"
        assert await take_ids(store) == []

    async def test_jobs_that_come_due_together_go_by_rank_then_id(self, store: Store, fixture: StoreFixture) -> None:
        late, first, second = await add(
            store, NewJob(Q, rank=1, delay=1), NewJob(Q, delay=30), NewJob(Q, start_at=await fixture.now() + 10_000)
        )
        await fixture.advance(60)
        assert await take_ids(store) == [first, second, late]


class TestOrder(Suite):
    async def test_the_lowest_rank_goes_first_and_equal_ranks_by_id(self, store: Store) -> None:
        a, b, c, d, e = await add(store, *(NewJob(Q, rank=rank) for rank in (2, 1, 2, 0.5, 1)))
        assert await take_ids(store) == [d, b, e, a, c]

    async def test_extreme_ranks_keep_their_order_and_value(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, rank=rank) for rank in reversed(RANKS)))
        taken = await store.take(Q, 100)
        assert [job.rank for job in taken] == [float(rank) for rank in sorted(RANKS)]
        zeros = [job.id for job in taken if job.rank == 0]
        assert zeros == sorted(zeros), "0.0 and -0.0 are the same rank"
        assert sorted(job.id for job in taken) == sorted(ids)

    async def test_ranks_that_are_the_same_float_are_equal(self, store: Store) -> None:
        ids = await add(store, NewJob(Q, rank=2**53 + 1), NewJob(Q, rank=2**53))
        assert await take_ids(store) == ids

    async def test_a_job_that_comes_later_with_a_lower_rank_overtakes(self, store: Store) -> None:
        low = await add_one(store, NewJob(Q, rank=5))
        high = await add_one(store, NewJob(Q, rank=-5))
        assert await take_ids(store, count=1) == [high]
        assert await take_ids(store, count=1) == [low]

    async def test_queues_do_not_mix(self, store: Store) -> None:
        here, there = await add(store, NewJob("a"), NewJob("a.b"))
        assert await take_ids(store, "a") == [here]
        assert await take_ids(store, "a.b") == [there]
        assert await take_ids(store, "A") == []
