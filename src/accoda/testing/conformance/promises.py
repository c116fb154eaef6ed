"""The twelve promises of a storage, one class each. Other modules test the verbs; here each promise is a story."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from msgspec.structs import replace

from accoda.errors import InvalidInput
from accoda.model import (
    REPORTS,
    Bury,
    ByKey,
    Cancel,
    Done,
    Lanes,
    NewJob,
    Outcome,
    Refused,
    Remove,
    Report,
    Retry,
    Revive,
)
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    begin_wait,
    close_to,
    finish,
    info_of,
    lost,
    stats_of,
    take_ids,
    take_one,
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture

FEW, MANY = 400, 16_000


class TestPromise01AJobIsNeverLeasedToTwoTakers(Suite):
    async def test_takers_that_come_at_once_share_the_jobs_out(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q) for _ in range(60)))
        batches = await asyncio.gather(*(store.take(Q, 7, lease=HOUR) for _ in range(12)))
        assert sorted(job.id for batch in batches for job in batch) == ids

    async def test_a_job_is_leased_anew_only_when_the_old_lease_is_over(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id = await add_one(store, NewJob(Q))
        first = await take_one(store, lease=30)
        await fixture.advance(29)
        assert await take_ids(store) == []
        await fixture.advance(1)
        second = await take_one(store)
        assert (second.id, second.lease != first.lease) == (id, True)


class TestPromise02NothingIsLost(Suite):
    async def test_a_worker_that_vanishes_gives_its_whole_batch_back(self, store: Store, fixture: StoreFixture) -> None:
        ids = await add(store, *(NewJob(Q, rank=-n) for n in range(10)))
        vanished = await store.take(Q, 10, lease=30)
        await fixture.advance(30)
        again = await store.take(Q, 100)
        assert sorted(job.id for job in again) == ids
        assert [job.attempts for job in again] == [1] * 10
        assert [job.prev_start_time for job in again] == [job.start_time for job in vanished]
        assert all(close_to(fixture, job.start_time, vanished[0].start_time + 30_000) for job in again)

    @pytest.mark.parametrize("look", ["take", "wait", "stats"])
    async def test_the_first_call_sees_it_back(self, store: Store, fixture: StoreFixture, look: str) -> None:
        await add_one(store, NewJob(Q))
        await take_one(store, lease=30)
        await fixture.advance(30)
        if look == "take":
            assert (await take_one(store)).attempts == 1
        elif look == "wait":
            assert await store.wait([Q], 0)
        else:
            assert (await stats_of(store)).ready == 1


class TestPromise03ALateHolderChangesNothing(Suite):
    async def test_neither_after_the_job_came_back_nor_while_another_runs_it_nor_after_it_is_done(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id = await add_one(store, NewJob(Q, b"x", keep_for=HOUR))
        late = (await take_one(store, lease=30)).lease
        next = [NewJob("next")]
        outcomes: list[Outcome] = [Done(late, result=b"late", then=next), Retry(late), Bury(late, "late", next)]
        await fixture.advance(30)
        for step in ("back", "running", "done"):
            if step == "running":
                current = await take_one(store, lease=HOUR)
            if step == "done":
                assert await store.settle([Done(current.lease, result=b"right")]) == []
            before, stats = await info_of(store, id), await store.stats()
            assert await store.settle(outcomes) == lost(late, late, late)
            assert await store.extend([late], 60) == lost(late)
            assert (await info_of(store, id), await store.stats()) == (before, stats)
        assert before.result == b"right"

    async def test_a_lease_of_another_moment_is_lost_though_id_and_attempts_are_right(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        """As after a return of the store to an older state: ids and attempts come again, the moment does not."""
        id = await add_one(store, NewJob(Q, b"x", keep_for=HOUR))
        held = await take_one(store, lease=HOUR)
        before, stats = await info_of(store, id), await store.stats()
        for moment in (held.lease.taken_at - 1, held.lease.taken_at + 1, 0):
            old = replace(held.lease, taken_at=moment)
            next = [NewJob("next")]
            outcomes: list[Outcome] = [Done(old, result=b"old", then=next), Retry(old), Bury(old, "old", next)]
            assert await store.settle(outcomes) == lost(old, old, old)
            assert await store.extend([old], 60) == lost(old)
        assert (await info_of(store, id), await store.stats()) == (before, stats)
        await fixture.advance(1)
        assert await store.extend([held.lease], HOUR) == []
        assert await store.settle([Done(held.lease)]) == [], "an extension does not change the token"

    async def test_attempts_never_go_down(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, key="k"))
        seen = []
        for step in ("retry", "expire", "bury", "replace", "stop"):
            job = await take_one(store, lease=30)
            seen.append(job.attempts)
            if step == "retry":
                await store.settle([Retry(job.lease)])
            elif step == "expire":
                await fixture.advance(30)
            elif step == "bury":
                await store.settle([Bury(job.lease, "x")])
                await store.change([Revive(id)])
            elif step == "replace":
                await store.enqueue([NewJob(Q, key="k", on_duplicate="replace")])
        assert seen == [0, 1, 2, 3, 4]


class TestPromise04JobsGoByRankThenId(Suite):
    async def test_however_they_came_into_the_line(self, store: Store, fixture: StoreFixture) -> None:
        retried, expired, delayed, plain, urgent = await add(
            store, NewJob(Q), NewJob(Q), NewJob(Q, delay=20), NewJob(Q, rank=3), NewJob(Q, rank=2)
        )
        first, _ = await store.take(Q, 2, lease=20)
        await store.settle([Retry(first.lease, delay=15)])
        await fixture.advance(20)
        assert await take_ids(store) == [retried, expired, delayed, urgent, plain]

    async def test_a_sleeper_wakes_at_the_start_time_and_not_at_a_poll(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        await add(store, NewJob(Q, delay=500), NewJob(Q, delay=40))
        waiting = await begin_wait(store, Q)
        await fixture.advance(40)
        assert await waiting
        assert len(await take_ids(store)) == 1


class TestPromise05TheStoresClockDecides(Suite):
    async def test_every_moment_is_the_stores(self, store: Store, fixture: StoreFixture) -> None:
        await fixture.advance(86_400)
        now = await fixture.now()
        id = await add_one(store, NewJob(Q, keep_for=60))
        job = await take_one(store, lease=60)
        info = await info_of(store, id)
        assert all(close_to(fixture, moment, now) for moment in (job.created_at, job.start_time, info.taken_at))
        await store.settle([Done(job.lease)])
        assert close_to(fixture, (await info_of(store, id)).ended_at, now)

    async def test_a_lease_lasts_as_long_as_the_stores_clock_says(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        job = await take_one(store, lease=7_200)
        await fixture.advance(7_100)
        assert await store.extend([job.lease], 7_200) == []
        await fixture.advance(7_200)
        assert await store.extend([job.lease], 7_200) == lost(job.lease)


class TestPromise06OneStepForAWholeBatch(Suite):
    async def test_outcomes_and_follow_ups_of_many_jobs_in_one_call(self, store: Store) -> None:
        await add(store, *(NewJob(Q, str(n).encode()) for n in range(50)))
        jobs = await store.take(Q, 50)
        assert await store.settle([Done(job.lease, then=[NewJob("next", job.data)]) for job in jobs]) == []
        assert [job.data for job in await store.take("next", 100)] == [job.data for job in jobs]
        assert (await stats_of(store)).done == 50

    @pytest.mark.parametrize("end", [Done, partial(Bury, reason="x")], ids=["done", "bury"])
    async def test_a_chain_of_follow_ups_breaks_nowhere(self, store: Store, end: Callable[..., Outcome]) -> None:
        await add_one(store, NewJob("step-0", b"x"))
        for n in range(10):
            job = await take_one(store, f"step-{n}")
            assert await store.settle([end(job.lease, then=[NewJob(f"step-{n + 1}", job.data)])]) == []
            alive = {name: stats.total - stats.dead for name, stats in (await store.stats()).queues.items()}
            assert sum(alive.values()) == alive[f"step-{n + 1}"] == 1

    async def test_all_or_nothing_is_enqueued(self, store: Store) -> None:
        bad = NewJob(Q)
        with pytest.raises(InvalidInput):
            await store.enqueue([*(NewJob(Q) for _ in range(20)), bad, object()])  # type: ignore[list-item]
        assert (await store.stats()).queues.get(Q, None) in (None, await stats_of(store, "never-used"))


class TestPromise07TheHeadIsNeverSkipped(Suite):
    async def test_a_dear_job_waits_at_the_head_until_it_can_be_paid(self, store: Store) -> None:
        dear = await add_one(store, NewJob(Q, cost=50))
        cheap = await add(store, *(NewJob(Q, cost=1) for _ in range(20)))
        for budget in (0, 10, 49):
            assert await take_ids(store, max_cost=budget) == []
        assert await take_ids(store, max_cost=53) == [dear, *cheap[:3]]


class TestPromise08OneJobForAKeyAndNoWaiterIsForgotten(Suite):
    async def test_those_who_join_while_it_runs_are_served_by_it(self, store: Store) -> None:
        def request(name: bytes) -> NewJob:
            return NewJob(Q, key="k", waiter=name, on_duplicate="attach")

        await store.enqueue([request(b"1"), request(b"2")])
        job = await take_one(store)
        seen = await waiters_of(store, job.lease)
        await store.enqueue([request(b"3")])
        deliveries = [NewJob("deliver", name) for name in seen]
        assert await store.settle([Done(job.lease, deliveries, waiters=len(seen))]) == [Refused(job.lease, "grown")]
        seen = await waiters_of(store, job.lease)
        deliveries = [NewJob("deliver", name) for name in seen]
        assert await store.settle([Done(job.lease, deliveries, waiters=len(seen))]) == []
        assert [each.data for each in await store.take("deliver", 9)] == [b"1", b"2", b"3"]
        assert [answer.what for answer in await store.enqueue([request(b"4")])] == ["created"]


class TestPromise09StatisticsAreNoScan(Suite):
    limit = 60.0

    async def test_many_jobs_do_not_make_them_slower(self, store: Store) -> None:
        await fill(store, FEW)
        few = await best_time(store.stats)
        await fill(store, MANY)
        assert await best_time(store.stats) < 10 * few


class TestPromise10OneOperationCostsAtMostLogN(Suite):
    limit = 60.0

    async def test_many_waiting_jobs_do_not_make_a_run_slower(self, store: Store) -> None:
        async def run() -> None:
            await store.enqueue([NewJob(Q, rank=-1, key="k", delay=0)])
            await finish(store, await take_one(store))

        await fill(store, FEW)
        few = await best_time(run)
        await fill(store, MANY)
        assert await best_time(run) < 10 * few


class TestPromise11AFlowHearsOfEveryEnd(Suite):
    async def test_every_way_to_end_is_told_once(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, key=f"k{n}", keep_for=HOUR, reports_to="flow") for n in range(6)))
        done, dead, revived = await store.take(Q, 3, lease=HOUR)
        assert await store.settle([Done(done.lease), Bury(dead.lease, "x"), Bury(revived.lease, "y")]) == []
        assert await store.change([Revive(ids[2]), Cancel(ids[3]), Remove(ids[4])]) == 3
        assert await store.purge(Q, "ready") == 2
        for state in ("done", "dead", "cancelled"):
            assert await store.purge(Q, state) == 1
        told = await reports_to(store, "flow")
        assert [(each.kind, ids.index(each.id)) for each in told] == [
            ("done", 0), ("dead", 1), ("dead", 2),
            ("revived", 2), ("cancelled", 3), ("removed", 4),
            ("removed", 2), ("removed", 5), ("removed", 1),
        ]  # fmt: skip

    async def test_what_is_refused_tells_nothing(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, key="k", reports_to="flow"))
        late = (await take_one(store, lease=30)).lease
        await fixture.advance(30)
        assert await store.settle([Done(late), Bury(late, "late")]) == lost(late, late)
        assert await store.change([Revive(id), Cancel(id, queue="other")]) == 0
        assert await reports_to(store, "flow") == []

    async def test_none_is_lost_while_the_flow_runs(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, key=f"k{n}", reports_to="flow") for n in range(30)))
        jobs = await store.take(Q, 30, lease=HOUR)
        heard: list[bytes] = []

        async def hear() -> None:
            while len(heard) < len(jobs):
                await store.wait([REPORTS], HOUR)
                for flow in await store.take(REPORTS, 1, lease=HOUR):
                    seen = await waiters_of(store, flow.lease)
                    while await store.settle([Done(flow.lease, waiters=len(seen))]):
                        seen = await waiters_of(store, flow.lease)
                    heard.extend(seen)

        await asyncio.gather(hear(), *(finish(store, job) for job in jobs))
        assert sorted(Report.read(each).id for each in heard) == ids


class TestPromise12ALaneIsNeverOverfullNorStuck(Suite):
    async def test_workers_that_die_leave_their_places(self, store: Store, fixture: StoreFixture) -> None:
        await store.set_lanes(Q, Lanes(limit=2, fair=True))
        await add(store, *(NewJob(Q, lane=lane) for lane in "aaaaab"))
        for _ in range(3):
            assert [job.lane for job in await store.take(Q, 9, lease=30)] == ["a", "b", "a"]
            await fixture.advance(30)
        left = 6
        while jobs := await store.take(Q, 9):
            assert [job.lane for job in jobs].count("a") <= 2
            await store.settle([Done(job.lease) for job in jobs])
            left -= len(jobs)
        assert left == 0

    async def test_a_job_is_held_only_while_its_lane_is_full(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=3))
        lanes, limit = ("a", "b"), 3
        for step in range(24):
            lane = lanes[step % 2]
            await add(store, *(NewJob(Q, rank=step % 5, lane=lane) for _ in range(step % 3)))
            jobs = await store.take(Q, step % 4, lease=HOUR)
            ends: list[Outcome] = [Done(job.lease) if job.id % 3 else Retry(job.lease, delay=HOUR) for job in jobs]
            await store.settle(ends[: step % 3])
            if step == 16:
                limit = 1
                await store.set_lanes(Q, Lanes(limit=1))
            for each in (await store.lanes(Q)).lanes:
                assert each.taken <= 3
                assert each.ready == 0 or each.ready + each.taken <= limit
                assert each.held == 0 or each.ready + each.taken >= limit

    async def test_ten_thousand_jobs_of_one_delay_no_other_by_more_than_a_turn(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(fair=True))
        await add(store, *(NewJob(Q, lane="large") for _ in range(10_000)))
        await add(store, *(NewJob(Q, lane=f"small-{n}") for n in range(50)))
        started = [job.lane for _ in range(6) for job in await store.take(Q, 10, lease=HOUR)]
        assert len(set(started)) == 51


async def reports_to(store: Store, flow: str) -> list[Report]:
    return [Report.read(each) for each in (await store.look(ByKey(REPORTS, flow), waiters_after=0)).waiters]


async def fill(store: Store, count: int) -> None:
    """Half of them ready, half delayed."""
    await store.enqueue([NewJob(Q, rank=n % 10, key=f"{count}-{n}", delay=HOUR * (n % 2)) for n in range(count)])


async def best_time(work: Callable[[], Awaitable[object]]) -> float:
    """The best of several runs: what the work costs when nothing else disturbs it."""
    times = []
    for _ in range(30):
        start = time.perf_counter()
        await work()
        times.append(time.perf_counter() - start)
    return min(times)
