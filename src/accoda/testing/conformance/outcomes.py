"""What each outcome does: Done and what follows, kept results, Retry, Bury and what follows."""

from __future__ import annotations

from accoda.model import Bury, Done, NewJob, Outcome, Remove, Retry, Revive
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    close_to,
    find,
    finish,
    info_of,
    lost,
    need_exact,
    state_of,
    stats_of,
    take_ids,
    take_one,
    taken,
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture


class TestDone(Suite):
    async def test_removes_the_job(self, store: Store) -> None:
        (job,) = await taken(store)
        await finish(store, job)
        assert await find(store, job.id) is None
        stats = await stats_of(store)
        assert (stats.total, stats.taken, stats.done) == (0, 0, 1)

    async def test_enqueues_what_follows(self, store: Store, fixture: StoreFixture) -> None:
        first, second = await taken(store, 2)
        then = [NewJob("next", b"1", rank=2), NewJob("next", b"2", rank=1), NewJob("later", delay=5)]
        assert (
            await store.settle([Done(first.lease, then=then), Done(second.lease, then=(NewJob("next", b"3"),))]) == []
        )
        assert [job.data for job in await store.take("next", 9)] == [b"3", b"2", b"1"]
        assert await take_ids(store, "later") == []
        await fixture.advance(5)
        assert len(await take_ids(store, "later")) == 1

    async def test_enqueues_follow_ups_of_equal_rank_in_order(self, store: Store) -> None:
        first, second = await taken(store, 2)
        outcomes = [
            Done(second.lease, then=[NewJob("n", b"1"), NewJob("n", b"2")]),
            Done(first.lease, then=[NewJob("n", b"3")]),
        ]
        assert await store.settle(outcomes) == []
        assert [job.data for job in await store.take("n", 9)] == [b"1", b"2", b"3"]

    async def test_lets_a_job_follow_itself_under_its_own_key(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, b"1", key="k"))
        job = await take_one(store)
        assert await store.settle([Done(job.lease, then=[NewJob(Q, b"2", key="k")])]) == []
        following = await take_one(store)
        assert (following.data, following.key, following.attempts) == (b"2", "k", 0)
        assert following.id > id

    async def test_applies_all_outcomes_before_any_follow_up(self, store: Store) -> None:
        await add(store, NewJob(Q, key="a"), NewJob(Q, key="b"))
        a, b = await store.take(Q, 2)
        assert await store.settle([Done(a.lease, then=[NewJob(Q, b"new", key="b")]), Done(b.lease)]) == []
        assert [(job.key, job.data) for job in await store.take(Q, 9)] == [("b", b"new")]

    async def test_lets_a_follow_up_attach_to_a_job_that_waits(self, store: Store) -> None:
        (job,) = await taken(store)
        await add_one(store, NewJob("shared", key="k", waiter=b"1"))
        then = [NewJob("shared", key="k", on_duplicate="attach", waiter=b"2")]
        assert await store.settle([Done(job.lease, then=then)]) == []
        assert await waiters_of(store, (await take_one(store, "shared")).lease) == [b"1", b"2"]

    async def test_that_is_refused_enqueues_nothing(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        await fixture.advance(10)
        assert await store.settle([Done(job.lease, then=[NewJob("next")])]) == lost(job.lease)
        assert await take_ids(store, "next") == []


class TestKeptResults(Suite):
    async def test_a_done_job_is_kept_as_long_as_told(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, b"data", keep_for=30))
        job = await take_one(store)
        await fixture.advance(2)
        assert await store.settle([Done(job.lease, result=b"answer")]) == []
        info = await info_of(store, id)
        assert (info.state, info.result, info.data) == ("done", b"answer", b"data")
        assert close_to(fixture, info.ended_at, await fixture.now())
        assert info.lease_until is None
        assert [each.id for each in await store.browse(Q, "done")] == [id]
        await fixture.advance(29)
        assert await state_of(store, id) == "done"
        await fixture.advance(1)
        assert await find(store, id) is None
        assert await store.browse(Q, "done") == []

    async def test_it_is_gone_at_the_exact_millisecond(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        id = await add_one(store, NewJob(Q, keep_for=0.002))
        await finish(store, await take_one(store))
        await fixture.advance(0.001)
        assert await state_of(store, id) == "done"
        await fixture.advance(0.001)
        assert await store.change([Remove(id)]) == 0

    async def test_it_counts_as_done_and_not_in_the_total(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q, keep_for=30))
        await finish(store, await take_one(store))
        for _ in range(2):
            stats = await stats_of(store)
            assert (stats.total, stats.ready, stats.taken, stats.dead, stats.done) == (0, 0, 0, 0, 1)
            await fixture.advance(30)

    async def test_it_is_never_handed_out_nor_settled_again(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, keep_for=HOUR))
        job = await take_one(store, lease=10)
        await finish(store, job)
        await fixture.advance(20)
        assert await take_ids(store) == []
        assert await store.settle([Done(job.lease, result=b"late")]) == lost(job.lease)
        assert await store.change([Revive(id)]) == 0
        assert (await info_of(store, id)).result is None

    async def test_only_done_jobs_are_forgotten(self, store: Store, fixture: StoreFixture) -> None:
        ready, dead = await add(store, NewJob(Q, rank=2, keep_for=5), NewJob(Q, keep_for=5))
        await store.settle([Bury((await take_one(store)).lease, "x")])
        await fixture.advance(100)
        assert [await state_of(store, id) for id in (ready, dead)] == ["ready", "dead"]


class TestRetry(Suite):
    async def test_without_a_delay_is_ready_again_at_once(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, b"x", rank=4, cost=1, key="k", waiter=b"w"))
        first = await take_one(store)
        await fixture.advance(3)
        assert await store.settle([Retry(first.lease, reason="again")]) == []
        again = await take_one(store)
        assert (again.id, again.attempts, again.rank, again.cost, again.key) == (id, 1, 4, 1, "k")
        assert again.prev_start_time == first.start_time
        assert close_to(fixture, again.start_time, await fixture.now())
        assert (await info_of(store, id)).reason == "again"
        assert await waiters_of(store, again.lease) == [b"w"]

    async def test_waits_for_its_delay(self, store: Store, fixture: StoreFixture) -> None:
        (job,) = await taken(store)
        assert await store.settle([Retry(job.lease, delay=30)]) == []
        info = await info_of(store, job.id)
        assert (info.state, info.attempts, info.lease_until) == ("delayed", 1, None)
        assert close_to(fixture, info.start_time, await fixture.now() + 30_000)
        await fixture.advance(29)
        assert await take_ids(store) == []
        await fixture.advance(1)
        assert await take_ids(store) == [job.id]

    async def test_waits_for_its_moment(self, store: Store, fixture: StoreFixture) -> None:
        (job,) = await taken(store)
        moment = await fixture.now() + 20_000
        await store.settle([Retry(job.lease, at=moment)])
        assert (await info_of(store, job.id)).start_time == moment
        await fixture.advance(20)
        assert (await take_one(store)).start_time == moment

    async def test_at_a_moment_in_the_past_is_ready_now(self, store: Store, fixture: StoreFixture) -> None:
        (job,) = await taken(store)
        await store.settle([Retry(job.lease, at=5)])
        again = await take_one(store)
        assert again.id == job.id
        assert close_to(fixture, again.start_time, await fixture.now())

    async def test_with_a_rank_goes_to_its_new_place(self, store: Store) -> None:
        first, second, third = await taken(store, 3)
        outcomes = [Retry(first.lease, rank=2.5), Retry(second.lease), Retry(third.lease, rank=-1)]
        assert await store.settle(outcomes) == []
        assert [(job.id, job.rank) for job in await store.take(Q, 9)] == [
            (third.id, -1.0), (second.id, 0.0), (first.id, 2.5),
        ]  # fmt: skip

    async def test_with_a_rank_and_a_delay_goes_to_its_new_place_when_it_is_due(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        first, second = await taken(store, 2)
        assert await store.settle([Retry(first.lease, rank=1, delay=5), Retry(second.lease, counts=False)]) == []
        assert (await info_of(store, first.id)).rank == 1
        await fixture.advance(5)
        assert await take_ids(store) == [second.id, first.id]

    async def test_keeps_the_new_rank_from_then_on(self, store: Store, fixture: StoreFixture) -> None:
        (job,) = await taken(store)
        await store.settle([Retry(job.lease, rank=7)])
        again = await take_one(store, lease=5)
        await fixture.advance(5)
        last = await take_one(store)
        assert (again.rank, last.rank) == (7, 7)
        await store.settle([Retry(last.lease, rank=0.0)])
        assert (await take_one(store)).rank == 0

    async def test_with_a_rank_of_a_lost_lease_leaves_the_rank(self, store: Store) -> None:
        (job,) = await taken(store)
        await store.settle([Retry(job.lease)])
        assert await store.settle([Retry(job.lease, rank=7)]) == lost(job.lease)
        assert (await info_of(store, job.id)).rank == 0

    async def test_keeps_its_place_by_rank_and_id(self, store: Store) -> None:
        first, second, third = await taken(store, 3)
        await store.settle([Retry(third.lease), Retry(first.lease)])
        (low,) = await add(store, NewJob(Q, rank=1))
        await store.settle([Retry(second.lease)])
        assert await take_ids(store) == [first.id, second.id, third.id, low]

    async def test_is_not_ended_again_by_its_old_lease(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        await store.settle([Retry(job.lease, delay=60)])
        await fixture.advance(20)
        info = await info_of(store, id)
        assert (info.state, info.attempts) == ("delayed", 1)
        assert (await stats_of(store)).expired == 0

    async def test_counts_on_without_end(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        for attempts in range(20):
            job = await take_one(store)
            assert job.attempts == attempts
            await store.settle([Retry(job.lease)])
        assert (await stats_of(store)).retried == 20


class TestBury(Suite):
    async def test_keeps_the_job_the_reason_the_moment_and_the_attempts(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id = await add_one(store, NewJob(Q, b"x", rank=2, cost=3, key="k"))
        await store.settle([Retry((await take_one(store)).lease)])
        job = await take_one(store)
        await fixture.advance(4)
        assert await store.settle([Bury(job.lease, "it broke")]) == []
        info = await info_of(store, id)
        assert (info.state, info.reason, info.attempts, info.data) == ("dead", "it broke", 1, b"x")
        assert (info.rank, info.cost, info.key) == (2, 3, "k")
        assert info.lease_until is None
        assert close_to(fixture, info.ended_at, await fixture.now())

    async def test_is_never_handed_out(self, store: Store, fixture: StoreFixture) -> None:
        (job,) = await taken(store)
        await store.settle([Bury(job.lease, "x")])
        await fixture.advance(HOUR * 2)
        assert await take_ids(store) == []
        assert await state_of(store, job.id) == "dead"
        stats = await stats_of(store)
        assert (stats.dead, stats.buried, stats.total, stats.expired) == (1, 1, 1, 0)

    async def test_enqueues_what_follows(self, store: Store, fixture: StoreFixture) -> None:
        first, second = await taken(store, 2)
        then = [NewJob("next", b"1", rank=2), NewJob("next", b"2", rank=1), NewJob("later", delay=5)]
        assert (
            await store.settle([Bury(first.lease, "x", then), Bury(second.lease, "y", (NewJob("next", b"3"),))]) == []
        )
        assert [(await info_of(store, job.id)).reason for job in (first, second)] == ["x", "y"]
        assert [job.data for job in await store.take("next", 9)] == [b"3", b"2", b"1"]
        assert await take_ids(store, "later") == []
        await fixture.advance(5)
        assert len(await take_ids(store, "later")) == 1
        stats = await stats_of(store)
        assert (stats.dead, stats.buried, stats.total) == (2, 2, 2)

    async def test_has_its_follow_ups_in_line_with_those_of_other_outcomes(self, store: Store) -> None:
        jobs = await taken(store, 5)
        outcomes: list[Outcome] = [
            Bury(jobs[4].lease, "x", [NewJob("n", b"1"), NewJob("n", b"2")]),
            Retry(jobs[3].lease),
            Done(jobs[2].lease, then=[NewJob("n", b"3")]),
            Bury(jobs[1].lease, "no more"),
            Bury(jobs[0].lease, "x", [NewJob("n", b"4")]),
        ]
        assert await store.settle(outcomes) == []
        assert [job.data for job in await store.take("n", 9)] == [b"1", b"2", b"3", b"4"]
        states = ["dead", "dead", "gone", "ready", "dead"]
        assert [await state_of(store, job.id) for job in jobs] == states

    async def test_lets_a_job_follow_itself_under_its_own_key(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, b"1", key="k", waiter=b"w"))
        job = await take_one(store)
        again = NewJob(Q, b"2", key="k", on_duplicate="attach", waiter=b"v")
        assert await store.settle([Bury(job.lease, "x", [again])]) == []
        following = await take_one(store)
        assert (following.data, following.key, following.attempts) == (b"2", "k", 0)
        assert following.id > id
        assert await waiters_of(store, following.lease) == [b"v"]
        assert await store.change([Revive(id)]) == 0, "the key is another's by now"

    async def test_applies_all_outcomes_before_any_follow_up(self, store: Store) -> None:
        await add(store, NewJob(Q, key="a"), NewJob(Q, key="b"))
        a, b = await store.take(Q, 2)
        assert await store.settle([Bury(a.lease, "x", [NewJob(Q, b"new", key="b")]), Bury(b.lease, "y")]) == []
        assert [(job.key, job.data) for job in await store.take(Q, 9)] == [("b", b"new")]

    async def test_lets_a_follow_up_attach_to_a_job_that_waits(self, store: Store) -> None:
        (job,) = await taken(store)
        await add_one(store, NewJob("shared", key="k", waiter=b"1"))
        then = [NewJob("shared", key="k", on_duplicate="attach", waiter=b"2")]
        assert await store.settle([Bury(job.lease, "x", then)]) == []
        assert await waiters_of(store, (await take_one(store, "shared")).lease) == [b"1", b"2"]

    async def test_that_is_refused_enqueues_nothing(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, NewJob(Q), NewJob(Q))
        late = await take_one(store, lease=10)
        good = await take_one(store, lease=HOUR)
        await fixture.advance(10)
        outcomes = [
            Bury(late.lease, "x", [NewJob("next", b"of the late"), NewJob("next", b"of the late")]),
            Bury(good.lease, "x", [NewJob("next", b"of the good")]),
            Bury(good.lease, "x", [NewJob("next", b"of the second")]),
        ]
        assert await store.settle(outcomes) == lost(late.lease, good.lease)
        assert [job.data for job in await store.take("next", 9)] == [b"of the good"]
        assert [await state_of(store, job.id) for job in (late, good)] == ["ready", "dead"]
