"""Reports: a job with `reports_to` tells its flow of every end and every revival, in the step that makes it so."""

from __future__ import annotations

import asyncio

import pytest

from accoda.limits import TEXT
from accoda.model import (
    REPORTS,
    RESULT_IN_REPORT,
    Bury,
    ByKey,
    Cancel,
    Done,
    Lease,
    NewJob,
    Remove,
    Report,
    Rerank,
    Retry,
    Revive,
    StartNow,
    State,
)
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    begin_wait,
    bury_one,
    close_to,
    finish,
    lost,
    state_of,
    stats_of,
    take_one,
)
from accoda.testing.store_fixture import StoreFixture

FLOW = "flow-é 7"


KEY = "m é/1"


def member(key: str = KEY, *, keep_for: float = 0.0, delay: float | None = None, queue: str = Q) -> NewJob:
    return NewJob(queue, b"data", key=key, keep_for=keep_for, delay=delay, reports_to=FLOW)


async def reports(store: Store, flow: str = FLOW) -> list[Report]:
    seen = await store.look(ByKey(REPORTS, flow), waiters_after=0)
    return [Report.read(waiter) for waiter in seen.waiters]


async def kinds(store: Store, flow: str = FLOW) -> list[tuple[str, int]]:
    return [(report.kind, report.id) for report in await reports(store, flow)]


async def member_in(store: Store, state: State) -> int:
    """A job that reports, in that state."""
    id = await add_one(store, member(keep_for=HOUR, delay=HOUR if state == "delayed" else None))
    if state in ("taken", "done", "dead"):
        job = await take_one(store, lease=HOUR)
        if state == "done":
            await finish(store, job)
        elif state == "dead":
            assert await store.settle([Bury(job.lease, "broken")]) == []
    elif state == "cancelled":
        assert await store.change([Cancel(id)]) == 1
    assert await state_of(store, id) == state
    return id


class TestReports(Suite):
    async def test_nothing_is_reported_before_the_end(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, member())
        job = await take_one(store, lease=5)
        assert await store.settle([Retry(job.lease)]) == []
        job = await take_one(store, lease=5)
        assert await store.extend([job.lease], 10) == []
        await fixture.advance(10)  # the lease ends
        job = await take_one(store)
        assert await store.settle([Retry(job.lease, delay=30)]) == []
        assert await store.change([Rerank(id, 5.0), StartNow(id)]) == 2
        await store.enqueue([NewJob(Q, b"new", key=KEY, on_duplicate="replace")])
        assert await reports(store) == []
        assert REPORTS not in (await store.stats()).queues

    async def test_a_done_job_is_reported_with_its_result(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, member())
        job = await take_one(store)
        assert await store.settle([Retry(job.lease)]) == []
        job = await take_one(store)
        assert await store.settle([Done(job.lease, result=b"r\n\x00\xff")]) == []
        (report,) = await reports(store)
        assert (report.kind, report.id, report.attempts, report.size, report.key) == ("done", id, 1, 4, KEY)
        assert report.body == b"r\n\x00\xff"
        assert close_to(fixture, report.at, await fixture.now())

    @pytest.mark.parametrize("keep_for", [0.0, HOUR])
    async def test_a_job_without_a_result_says_so(self, store: Store, keep_for: float) -> None:
        await add_one(store, member(keep_for=keep_for))
        await finish(store, await take_one(store))
        (report,) = await reports(store)
        assert (report.kind, report.size, report.body) == ("done", -1, b"")

    @pytest.mark.parametrize("size", [RESULT_IN_REPORT, RESULT_IN_REPORT + 1])
    async def test_a_large_result_is_not_in_the_report(self, store: Store, size: int) -> None:
        await add_one(store, member())
        job = await take_one(store)
        assert await store.settle([Done(job.lease, result=b"x" * size)]) == []
        (report,) = await reports(store)
        assert report.size == size
        assert report.body == (b"x" * size if size == RESULT_IN_REPORT else b"")

    async def test_a_dead_job_is_reported_with_the_reason(self, store: Store, fixture: StoreFixture) -> None:
        id = await bury_one(store, member(), "no\nstöck")
        (report,) = await reports(store)
        assert (report.kind, report.id, report.attempts, report.size, report.key) == ("dead", id, 0, -1, KEY)
        assert report.body.decode() == "no\nstöck"
        assert close_to(fixture, report.at, await fixture.now())

    async def test_a_long_reason_is_in_the_report(self, store: Store) -> None:
        """Though it has more bytes than a waiter may have."""
        await bury_one(store, member(), "🎺" * TEXT)
        (report,) = await reports(store)
        assert report.body.decode() == "🎺" * TEXT

    @pytest.mark.parametrize("state", ["ready", "delayed", "taken"])
    @pytest.mark.parametrize("end", [Cancel, Remove])
    async def test_a_job_that_is_taken_back_is_reported(
        self, store: Store, state: State, end: type[Cancel | Remove]
    ) -> None:
        id = await member_in(store, state)
        assert await store.change([end(id)]) == 1
        assert await kinds(store) == [("cancelled" if end is Cancel else "removed", id)]

    @pytest.mark.parametrize("state", ["ready", "delayed", "taken", "dead"])
    async def test_purged_jobs_are_reported(self, store: Store, state: State) -> None:
        id = await member_in(store, state)
        before = await kinds(store)
        assert await store.purge(Q, state) == 1
        assert await kinds(store) == [*before, ("removed", id)]

    @pytest.mark.parametrize("state", ["done", "cancelled"])
    @pytest.mark.parametrize("way", ["purge", "remove", "time"])
    async def test_an_end_is_reported_once_though_the_job_was_kept(
        self, store: Store, fixture: StoreFixture, state: State, way: str
    ) -> None:
        id = await member_in(store, state)
        if way == "purge":
            assert await store.purge(Q, state) == 1
        elif way == "remove":
            assert await store.change([Remove(id)]) == 1
        else:
            await fixture.advance(HOUR)
            assert await state_of(store, id) == "gone"
        assert await kinds(store) == [(state, id)]

    async def test_a_dead_job_that_is_removed_is_reported_again(self, store: Store) -> None:
        id = await member_in(store, "dead")
        assert await store.change([Remove(id)]) == 1
        assert await kinds(store) == [("dead", id), ("removed", id)]

    async def test_a_revived_job_is_reported_and_reports_again(self, store: Store) -> None:
        id = await member_in(store, "dead")
        assert await store.change([Revive(id)]) == 1
        assert [(each.kind, each.attempts) for each in await reports(store)] == [("dead", 0), ("revived", 1)]
        await finish(store, await take_one(store))
        assert await kinds(store) == [("dead", id), ("revived", id), ("done", id)]

    async def test_a_job_that_stays_dead_is_not_revived(self, store: Store) -> None:
        id = await member_in(store, "dead")
        await add_one(store, NewJob(Q, key=KEY))  # holds its key now
        assert await store.change([Revive(id)]) == 0
        assert await kinds(store) == [("dead", id)]

    async def test_a_change_that_is_not_applied_reports_nothing(self, store: Store) -> None:
        id = await member_in(store, "ready")
        await store.enqueue([NewJob(Q, key=KEY, on_duplicate="attach", waiter=b"w")])
        assert await store.change([Cancel(id, waiters=0), Remove(id, waiters=0), Remove(id, queue="other")]) == 0
        assert await reports(store) == []

    async def test_a_refused_outcome_reports_nothing(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, member())
        late = (await take_one(store, lease=5)).lease
        await fixture.advance(5)
        job = await take_one(store)
        await store.enqueue([NewJob(Q, key=KEY, on_duplicate="attach", waiter=b"w")])
        assert await store.settle([Done(late), Bury(late, "late")]) == lost(late, late)
        assert [each.why for each in await store.settle([Done(job.lease, waiters=0)])] == ["grown"]
        assert await reports(store) == []

    async def test_a_replaced_job_still_reports(self, store: Store) -> None:
        id = await add_one(store, member())
        await store.enqueue([NewJob(Q, b"new", key=KEY, on_duplicate="replace")])
        await finish(store, await take_one(store))
        assert await kinds(store) == [("done", id)]


class TestReportsOfMany(Suite):
    async def test_each_flow_hears_of_its_own_jobs_in_the_order_of_the_outcomes(self, store: Store) -> None:
        ids = await add(
            store,
            *(NewJob(Q, key=f"k{n}", reports_to=f"flow-{n % 2}") for n in range(6)),
            NewJob(Q, key="alone"),
        )
        jobs = await store.take(Q, 10, lease=HOUR)
        outcomes = [Bury(job.lease, "x") if n == 3 else Done(job.lease) for n, job in enumerate(jobs)]
        assert await store.settle(outcomes) == []
        assert await kinds(store, "flow-0") == [("done", ids[0]), ("done", ids[2]), ("done", ids[4])]
        assert await kinds(store, "flow-1") == [("done", ids[1]), ("dead", ids[3]), ("done", ids[5])]

    async def test_follow_ups_come_before_the_report(self, store: Store) -> None:
        """So a flow never hears of the end of a member before what the member left for it."""
        id = await add_one(store, member())
        job = await take_one(store)
        note = NewJob(REPORTS, key=FLOW, on_duplicate="attach", waiter=b"note")
        assert await store.settle([Done(job.lease, [note])]) == []
        seen = await store.look(ByKey(REPORTS, FLOW), waiters_after=0)
        assert seen.waiters[0] == b"note"
        assert Report.read(seen.waiters[1]).id == id

    async def test_reports_from_several_queues_meet(self, store: Store) -> None:
        ids = await add(store, *(member(queue=queue) for queue in ("a", "b", "c.d")))
        for queue in ("a", "b", "c.d"):
            await finish(store, await take_one(store, queue))
        assert sorted(await kinds(store)) == sorted(("done", id) for id in ids)

    async def test_the_job_with_the_reports_is_one_like_any_other(self, store: Store) -> None:
        await add(store, *(member(f"m{n}") for n in range(3)))
        for job in await store.take(Q, 2, lease=HOUR):
            await finish(store, job)
        assert (await stats_of(store, REPORTS)).ready == 1
        flow = await take_one(store, REPORTS)
        assert (flow.key, flow.data, flow.waiters) == (FLOW, b"", 2)
        await finish(store, await take_one(store))  # attaches to the one that runs
        assert [each.why for each in await store.settle([Done(flow.lease, waiters=2)])] == ["grown"]
        assert await store.settle([Done(flow.lease, waiters=3)]) == []
        assert await reports(store) == []

    async def test_a_report_wakes_who_waits_for_it(self, store: Store) -> None:
        await add(store, member("one"), member("two"), member("three"))
        jobs = await store.take(Q, 2, lease=HOUR)
        waiting = await begin_wait(store, REPORTS)
        await finish(store, jobs[0])
        assert await waiting
        flow = await take_one(store, REPORTS)
        assert await store.settle([Done(flow.lease)]) == []
        waiting = await begin_wait(store, REPORTS)
        assert await store.change([Cancel(jobs[1].id)]) == 1
        assert await waiting
        flow = await take_one(store, REPORTS)
        assert await store.settle([Done(flow.lease)]) == []
        waiting = await begin_wait(store, REPORTS)
        assert await store.purge(Q, "ready") == 1
        assert await waiting

    async def test_a_thousand_members_end_at_once(self, store: Store) -> None:
        ids = await add(store, *(member(f"m{n}") for n in range(1000)))
        jobs = await store.take(Q, 1000, lease=HOUR)
        assert await store.settle([Done(job.lease, result=b"r") for job in jobs]) == []
        assert [report.id for report in await reports(store)] == ids

    async def test_ends_that_race_are_reported_once_each(self, store: Store) -> None:
        await add(store, *(member(f"m{n}") for n in range(20)))
        jobs = await store.take(Q, 20, lease=HOUR)

        async def end(lease: Lease) -> None:
            await asyncio.gather(
                store.settle([Done(lease)]), store.settle([Bury(lease, "x")]), store.change([Cancel(lease.id)])
            )

        await asyncio.gather(*(end(job.lease) for job in jobs))
        assert sorted(each.id for each in await reports(store)) == sorted(job.id for job in jobs)


class TestRetryWithFollowUps(Suite):
    async def test_enqueues_what_follows_and_comes_back(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store)
        then = [NewJob("next", b"one"), NewJob("next", b"two")]
        assert await store.settle([Retry(job.lease, counts=False, then=then)]) == []
        assert [each.data for each in await store.take("next", 5)] == [b"one", b"two"]
        again = await take_one(store)
        assert (again.id, again.attempts, again.tries) == (id, 1, 0)

    async def test_keeps_its_waiters(self, store: Store) -> None:
        await store.enqueue([NewJob(Q, key="k", waiter=b"w")])
        job = await take_one(store)
        assert await store.settle([Retry(job.lease, then=[NewJob("next")])]) == []
        assert (await take_one(store)).waiters == 1

    async def test_a_refused_one_enqueues_nothing(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        job = await take_one(store)
        assert await store.settle([Retry(job.lease)]) == []
        assert await store.settle([Retry(job.lease, then=[NewJob("next")])]) == lost(job.lease)
        assert await store.take("next", 1) == []

    async def test_may_follow_itself_under_its_own_key(self, store: Store) -> None:
        """It still holds the key: the follow-up is kept."""
        await add_one(store, NewJob(Q, key="k"))
        job = await take_one(store)
        assert await store.settle([Retry(job.lease, then=[NewJob(Q, b"second", key="k")])]) == []
        assert (await stats_of(store)).total == 1
