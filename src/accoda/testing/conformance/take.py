"""`take`: which jobs are leased, what a lease holds, and what happens at its end."""

from __future__ import annotations

from accoda.model import Done, Lease, NewJob
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
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
    stats_of,
    take_ids,
    take_one,
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture


class TestTake(Suite):
    async def test_of_an_empty_or_unknown_queue_gives_nothing(self, store: Store) -> None:
        assert await store.take("nowhere", 5) == []

    async def test_gives_at_most_count_jobs(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q) for _ in range(5)))
        assert await take_ids(store, count=2) == ids[:2]
        assert await take_ids(store, count=10) == ids[2:]
        assert await take_ids(store) == []

    async def test_of_zero_jobs_takes_none(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        assert await store.take(Q, 0) == []
        assert await state_of(store, id) == "ready"

    async def test_gives_the_whole_job(self, store: Store, fixture: StoreFixture) -> None:
        created = await fixture.now()
        start = created + 5_000
        id = await add_one(store, NewJob(Q, b"data", rank=1.5, start_at=start, cost=3, key="k", waiter=b"w"))
        await fixture.advance(7)
        job = await take_one(store)
        assert (job.id, job.queue, job.data, job.rank, job.cost, job.key) == (id, Q, b"data", 1.5, 3, "k")
        assert close_to(fixture, job.created_at, created)
        assert (job.start_time, job.prev_start_time) == (start, None)
        taken_at = (await info_of(store, id)).taken_at
        assert taken_at is not None
        assert (job.attempts, job.waiters, job.lease) == (0, 1, Lease(Q, id, 0, taken_at))

    async def test_tells_who_runs_the_job_and_until_when(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await fixture.advance(3)
        now = await fixture.now()
        await take_one(store, lease=20, worker="host-1")
        info = await info_of(store, id)
        assert (info.state, info.worker) == ("taken", "host-1")
        assert close_to(fixture, info.taken_at, now)
        assert close_to(fixture, info.lease_until, now + 20_000)

    async def test_leases_for_sixty_seconds_unless_told(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await store.take(Q, 1)
        assert close_to(fixture, (await info_of(store, id)).lease_until, await fixture.now() + 60_000)

    async def test_counts_the_waiters_of_the_moment(self, store: Store) -> None:
        await add(store, NewJob(Q, key="k", waiter=b"1"), NewJob(Q, key="k", waiter=b"2", on_duplicate="attach"))
        assert (await take_one(store)).waiters == 2


class TestCost(Suite):
    async def test_the_summed_cost_stays_within_the_limit(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, cost=cost) for cost in (3, 4, 3)))
        assert await take_ids(store, max_cost=7) == ids[:2]
        assert await take_ids(store, max_cost=2) == []
        assert await take_ids(store, max_cost=3) == ids[2:]

    async def test_the_head_is_never_skipped_for_a_cheaper_job(self, store: Store) -> None:
        dear, cheap, free = await add(store, NewJob(Q, cost=5), NewJob(Q, cost=1), NewJob(Q, cost=0))
        assert await take_ids(store, max_cost=4) == []
        assert await state_of(store, cheap) == "ready"
        assert await take_ids(store, max_cost=5) == [dear], "and then 0 is left: the next costs 1"
        assert await take_ids(store, max_cost=1) == [cheap, free]

    async def test_a_dear_job_in_the_middle_stops_the_batch(self, store: Store) -> None:
        first, dear, last = await add(store, NewJob(Q, cost=1), NewJob(Q, cost=9), NewJob(Q, cost=1))
        assert await take_ids(store, max_cost=5) == [first]
        assert [await state_of(store, id) for id in (dear, last)] == ["ready", "ready"]

    async def test_jobs_that_cost_nothing_are_taken_with_nothing_left(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q), NewJob(Q, cost=1))
        assert await take_ids(store, max_cost=0) == ids[:2]

    async def test_without_a_limit_the_cost_does_not_matter(self, store: Store) -> None:
        ids = await add(store, NewJob(Q, cost=1_000_000), NewJob(Q, cost=1 << 53))
        assert await take_ids(store) == ids

    async def test_count_and_cost_both_limit(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, cost=1) for _ in range(5)))
        assert await take_ids(store, count=2, max_cost=4) == ids[:2]
        assert await take_ids(store, count=9, max_cost=2) == ids[2:4]

    async def test_the_rank_decides_who_is_head(self, store: Store) -> None:
        cheap, dear = await add(store, NewJob(Q, rank=2, cost=1), NewJob(Q, rank=1, cost=5))
        assert await take_ids(store, max_cost=4) == []
        assert await take_ids(store, max_cost=6) == [dear, cheap]


class TestLeaseEnd(Suite):
    async def test_brings_the_job_back(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, b"data", rank=3.5, cost=2, key="k", waiter=b"w"))
        first = await take_one(store, lease=10)
        await fixture.advance(10)
        again = await take_one(store, lease=10)
        assert (again.id, again.attempts, again.lease) == (id, 1, Lease(Q, id, 1, again.lease.taken_at))
        assert again.lease.taken_at >= first.lease.taken_at + 10_000
        assert again.prev_start_time == first.start_time
        assert close_to(fixture, again.start_time, await fixture.now())
        assert (again.data, again.rank, again.cost, again.key, again.waiters) == (b"data", 3.5, 2, "k", 1)
        assert again.created_at == first.created_at

    async def test_comes_at_the_exact_millisecond(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        await fixture.advance(9.999)
        assert await state_of(store, id) == "taken"
        assert await take_ids(store) == []
        assert await store.extend([job.lease], 0.001) == []
        await fixture.advance(0.001)
        assert await store.settle([Done(job.lease)]) == lost(job.lease)
        assert await state_of(store, id) == "ready"

    async def test_is_too_late_for_the_holder_even_before_anyone_looks(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        jobs = [(await add_one(store, NewJob(Q, key=str(n))), await take_one(store, lease=10)) for n in range(3)]
        await fixture.advance(10)
        (_, settled), (_, extended), (_, asked) = jobs
        assert await store.settle([Done(settled.lease, then=[NewJob("next")])]) == lost(settled.lease)
        assert await store.extend([extended.lease], 60) == lost(extended.lease)
        assert await waiters_of(store, asked.lease) == []
        assert [await state_of(store, id) for id, _ in jobs] == ["ready"] * 3
        assert (await stats_of(store, "next")).total == 0

    async def test_is_counted_as_expired(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, *(NewJob(Q) for _ in range(3)))
        await store.take(Q, 2, lease=10)
        await fixture.advance(10)
        stats = await stats_of(store)
        assert (stats.expired, stats.ready, stats.taken, stats.total) == (2, 3, 0, 3)
        assert (stats.retried, stats.done, stats.buried) == (0, 0, 0)

    async def test_puts_the_job_back_by_its_rank_and_id(self, store: Store, fixture: StoreFixture) -> None:
        first, second = await add(store, NewJob(Q, rank=1), NewJob(Q, rank=1))
        await take_one(store, lease=10)
        (third,) = await add(store, NewJob(Q, rank=0.5))
        await fixture.advance(10)
        assert await take_ids(store) == [third, first, second]

    async def test_is_seen_by_look_and_browse_without_any_take(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await take_one(store, lease=10)
        await fixture.advance(10)
        info = await info_of(store, id)
        assert (info.state, info.attempts, info.lease_until) == ("ready", 1, None)
        assert [each.id for each in await store.browse(Q, "ready")] == [id]
        assert await store.browse(Q, "taken") == []

    async def test_happens_again_and_again(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        starts: list[int] = []
        for attempts in range(4):
            job = await take_one(store, lease=10)
            assert (job.id, job.attempts) == (id, attempts)
            assert job.prev_start_time == (starts[-1] if starts else None)
            starts.append(job.start_time)
            await fixture.advance(10)
        await finish(store, await take_one(store))
        assert (await stats_of(store)).expired == 4

    async def test_of_a_shorter_lease_does_not_touch_a_longer_one(self, store: Store, fixture: StoreFixture) -> None:
        short, long = await add(store, NewJob(Q), NewJob(Q))
        await take_one(store, lease=10)
        kept = await take_one(store, lease=30)
        await fixture.advance(10)
        assert [await state_of(store, id) for id in (short, long)] == ["ready", "taken"]
        await finish(store, kept)
