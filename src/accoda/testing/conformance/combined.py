"""Features together: where rank, delay, key, cost, pause, leases and kept results meet."""

from __future__ import annotations

from accoda.model import Bury, Done, Enqueued, NewJob, Refused, Rerank, Retry, Revive
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
    state_of,
    stats_of,
    take_ids,
    take_one,
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture


class TestCombined(Suite):
    async def test_rank_delay_key_cost_and_pause_in_one_line(self, store: Store, fixture: StoreFixture) -> None:
        await store.pause(Q, await fixture.now() + 30_000)
        cheap, dear, late = await add(
            store,
            NewJob(Q, rank=2, cost=1, key="cheap"),
            NewJob(Q, rank=1, cost=8, key="dear", delay=10),
            NewJob(Q, rank=0, cost=1, key="late", delay=40),
        )
        await store.enqueue([NewJob(Q, rank=1, cost=4, key="dear", on_duplicate="replace", delay=20)])
        assert await take_ids(store, max_cost=9) == []
        await fixture.advance(30)
        assert await take_ids(store, max_cost=3) == [], "the head costs 4 now"
        assert await take_ids(store, max_cost=5) == [dear, cheap]
        await fixture.advance(10)
        assert await take_ids(store, max_cost=5) == [late]

    async def test_debounce_runs_once_with_the_last_data(self, store: Store, fixture: StoreFixture) -> None:
        for n in range(5):
            await store.enqueue([NewJob(Q, str(n).encode(), key="k", on_duplicate="replace", delay=10)])
            await fixture.advance(9)
            assert await take_ids(store) == []
        await fixture.advance(1)
        assert [job.data for job in await store.take(Q, 9)] == [b"4"]

    async def test_a_replaced_head_goes_to_its_new_place(self, store: Store) -> None:
        first, second = await add(store, NewJob(Q, rank=1, key="k"), NewJob(Q, rank=2))
        await store.enqueue([NewJob(Q, rank=3, key="k", on_duplicate="replace")])
        assert await take_ids(store) == [second, first]

    async def test_a_replaced_job_gets_the_new_cost_and_keeping(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, cost=9, key="k"))
        await store.enqueue([NewJob(Q, cost=1, key="k", keep_for=60, on_duplicate="replace")])
        (job,) = await store.take(Q, 1, max_cost=1)
        await finish(store, job)
        assert await state_of(store, id) == "done"

    async def test_a_reranked_job_keeps_its_rank_through_retry_and_lease_end(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id, other = await add(store, NewJob(Q, rank=5), NewJob(Q, rank=3))
        await store.change([Rerank(id, 1)])
        await store.settle([Retry((await take_one(store)).lease)])
        assert (await take_one(store, lease=10)).id == id
        await fixture.advance(10)
        assert await take_ids(store) == [id, other]

    async def test_a_kept_result_and_a_new_job_under_the_same_key_live_side_by_side(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        old = await add_one(store, NewJob(Q, key="k", keep_for=30))
        await store.settle([Done((await take_one(store)).lease, result=b"old")])
        new = await add_one(store, NewJob(Q, key="k", keep_for=30))
        assert [await state_of(store, id) for id in (old, new)] == ["done", "ready"]
        await fixture.advance(30)
        assert [await state_of(store, id) for id in (old, new)] == ["gone", "ready"]
        assert await store.enqueue([NewJob(Q, key="k")]) == [Enqueued(new, "kept", 0)]

    async def test_waiters_stay_through_retry_and_lease_end_and_revival(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id = await add_one(store, NewJob(Q, key="k", waiter=b"1"))
        await store.settle([Retry((await take_one(store)).lease, delay=5)])
        await store.enqueue([NewJob(Q, key="k", waiter=b"2", on_duplicate="attach")])
        await fixture.advance(5)
        await take_one(store, lease=10)
        await fixture.advance(10)
        await store.settle([Bury((await take_one(store)).lease, "x")])
        await store.change([Revive(id)])
        job = await take_one(store)
        assert (job.attempts, await waiters_of(store, job.lease)) == (3, [b"1", b"2"])

    async def test_a_lease_that_ends_in_a_pause_waits_for_its_end(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        await take_one(store, lease=10)
        await store.pause(Q, await fixture.now() + 30_000)
        await fixture.advance(10)
        assert (await stats_of(store)).expired == 1
        assert await take_ids(store) == []
        await fixture.advance(20)
        assert (await take_one(store)).attempts == 1

    async def test_a_retried_job_that_is_too_dear_holds_up_the_line(self, store: Store) -> None:
        dear, cheap = await add(store, NewJob(Q, cost=5), NewJob(Q, cost=1))
        await store.settle([Retry((await take_one(store)).lease)])
        assert await take_ids(store, max_cost=4) == []
        assert await take_ids(store, max_cost=6) == [dear, cheap]

    async def test_follow_ups_obey_the_keys_that_hold(self, store: Store) -> None:
        await add(store, NewJob(Q), NewJob("next", b"old", key="k", delay=60))
        job = await take_one(store)
        then = [NewJob("next", b"new", key="k", on_duplicate="replace"), NewJob("next", b"no", key="k")]
        assert await store.settle([Done(job.lease, then=then)]) == []
        assert [each.data for each in await store.take("next", 9)] == [b"new"]

    async def test_a_follow_up_may_replace_a_job_that_runs(self, store: Store) -> None:
        await add(store, NewJob(Q, b"1"), NewJob(Q, b"2", key="k"))
        one, two = await store.take(Q, 2)
        then = [NewJob(Q, b"3", key="k", on_duplicate="replace")]
        assert await store.settle([Done(one.lease, then=then), Retry(two.lease, reason="x")]) == []
        again = await take_one(store)
        assert (again.id, again.data, again.attempts) == (two.id, b"3", 1)
        assert await store.settle([Done(two.lease)]) == lost(two.lease)

    async def test_a_refused_done_leaves_its_lease_running_to_its_own_end(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id = await add_one(store, NewJob(Q, key="k", waiter=b"w"))
        job = await take_one(store, lease=30)
        until = (await info_of(store, id)).lease_until
        await fixture.advance(10)
        assert await store.settle([Done(job.lease, waiters=0)]) == [Refused(job.lease, "grown")]
        assert (await info_of(store, id)).lease_until == until
        await fixture.advance(20)
        assert await store.settle([Done(job.lease)]) == lost(job.lease)

    async def test_an_attached_waiter_does_not_make_a_delayed_job_ready(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id = await add_one(store, NewJob(Q, key="k", delay=30, rank=100))
        await store.enqueue([NewJob(Q, key="k", waiter=b"w", on_duplicate="attach")])
        assert await take_ids(store) == []
        assert await store.change([Rerank(id, 1, waiters=0)]) == 0
        assert await store.change([Rerank(id, 1, waiters=1)]) == 1
        await fixture.advance(30)
        assert (await take_one(store, lease=HOUR)).rank == 1

    async def test_an_early_look_does_not_change_what_a_lease_end_gives(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id = await add_one(store, NewJob(Q))
        first = await take_one(store, lease=10)
        await fixture.advance(10)
        seen = await info_of(store, id)
        await fixture.advance(10)
        again = await take_one(store)
        assert (again.start_time, again.prev_start_time) == (seen.start_time, first.start_time)
        assert close_to(fixture, seen.start_time, first.start_time + 10_000)
