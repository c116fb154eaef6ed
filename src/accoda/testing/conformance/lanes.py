"""Lanes: limits for each of them, held jobs, and a line in which lanes take turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from accoda.model import (
    NEWCOMER,
    REPORTS,
    TURN,
    Bury,
    ByKey,
    Cancel,
    Done,
    Head,
    Job,
    LaneInfo,
    Lanes,
    LanesInfo,
    NewJob,
    NotCrashed,
    Remove,
    Rerank,
    Retry,
    Revive,
    StartNow,
    Stats,
)
from accoda.storage.protocol import DUE_AT_ONCE, Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    begin_wait,
    bury_one,
    finish,
    info_of,
    need_shared,
    state_of,
    stats_of,
    take_ids,
    take_one,
)
from accoda.testing.store_fixture import StoreFixture

ONE = Lanes(limit=1)
FAIR = Lanes(fair=True)
FIRST = TURN * NEWCOMER  # of the first job of a line


def of(lane: str | None, *, rank: float = 0.0, cost: int = 0, key: str | None = None) -> NewJob:
    return NewJob(Q, (lane or "").encode(), rank=rank, cost=cost, key=key, lane=lane)


async def states(store: Store, *ids: int) -> list[str]:
    return [await state_of(store, id) for id in ids]


async def turns(store: Store) -> dict[int, float]:
    """What orders each ready job, in the order of the line."""
    return {job.id: job.cursor().sort for job in await store.browse(Q, "ready", limit=1000)}


async def order(store: Store, count: int = 1000) -> str:
    """The lanes of the ready jobs, as `take` hands them out one by one; each job is done before the next is taken."""
    lanes: list[str] = []
    while len(lanes) < count and (jobs := await store.take(Q, 1)):
        lanes.append(jobs[0].lane or "-")
        await finish(store, jobs[0])
    return "".join(lanes)


class TestLaneLimit(Suite):
    async def test_of_each_lane_so_many_are_in_the_line_and_the_others_are_held(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=2))
        ids = await add(store, *(of("a") for _ in range(4)), of("b"), of(None), of(None), of(None))
        assert await states(store, *ids) == ["ready", "ready", "held", "held", *["ready"] * 4]
        assert await take_ids(store) == [*ids[:2], *ids[4:]]
        assert await states(store, *ids) == ["taken", "taken", "held", "held", *["taken"] * 4]
        assert await take_ids(store) == []

    async def test_held_jobs_are_counted(self, store: Store, fixture: StoreFixture) -> None:
        await store.set_lanes(Q, Lanes(limit=0))
        await add(store, of("a"), of("a"))
        await fixture.advance(5)
        stats = await stats_of(store)
        assert (stats.total, stats.held, stats.ready, stats.oldest_age) == (2, 2, 0, 0.0)

    async def test_a_job_says_its_lane(self, store: Store) -> None:
        id = await add_one(store, of("customer 7/ü"))
        assert (await info_of(store, id)).lane == "customer 7/ü"
        assert (await take_one(store)).lane == "customer 7/ü"
        assert (await info_of(store, await add_one(store, of(None)))).lane is None

    async def test_without_rules_a_lane_changes_nothing(self, store: Store) -> None:
        ids = await add(store, of("a"), of("a", rank=-1), of("b"), of("a"))
        assert await take_ids(store) == [ids[1], ids[0], *ids[2:]]

    async def test_limits_of_single_lanes_win(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=1, limits={"many": 2, "none": 0, "all": None}))
        await add(store, *(of(lane) for lane in ("one", "many", "none", "all") for _ in range(3)))
        jobs = await store.take(Q, 100)
        assert Counter(job.lane for job in jobs) == {"one": 1, "many": 2, "all": 3}

    async def test_a_limit_holds_over_batches(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=3))
        await add(store, *(of("a") for _ in range(10)))
        assert len(await store.take(Q, 2)) == 2
        assert len(await store.take(Q, 100)) == 1
        assert len(await store.take(Q, 100)) == 0

    async def test_a_lower_limit_holds_back_what_is_in_the_line(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=4))
        ids = await add(store, *(of("a") for _ in range(5)))
        job = await take_one(store)
        await store.set_lanes(Q, Lanes(limit=2))
        assert await states(store, *ids) == ["taken", "ready", "held", "held", "held"]
        await store.set_lanes(Q, Lanes(limit=0))
        assert await states(store, *ids) == ["taken", "held", "held", "held", "held"]
        await finish(store, job)
        assert (await stats_of(store)).held == 4

    @pytest.mark.parametrize(
        "rules", [None, Lanes(), Lanes(limit=1, limits={"a": None}), Lanes(limit=1, limits={"a": 9})]
    )
    async def test_a_higher_limit_lets_in_at_once(self, store: Store, rules: Lanes | None) -> None:
        await store.set_lanes(Q, ONE)
        ids = await add(store, *(of("a") for _ in range(5)))
        await store.set_lanes(Q, rules)
        assert await states(store, *ids) == ["ready"] * 5
        assert await take_ids(store) == ids

    async def test_jobs_that_ran_before_the_rules_count(self, store: Store) -> None:
        ids = await add(store, of("a"), of("a"), of("a"))
        await take_one(store)
        await store.set_lanes(Q, Lanes(limit=2))
        assert await states(store, *ids) == ["taken", "ready", "held"]

    async def test_the_rules_of_a_queue_are_its_own(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        await store.set_lanes("other", Lanes(limit=2))
        await add(store, *(NewJob(queue, lane="a") for queue in (Q, "other", "third") for _ in range(3)))
        assert [len(await store.take(queue, 9)) for queue in (Q, "other", "third")] == [1, 2, 3]

    async def test_a_pause_holds_as_well(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        first, second = await add(store, of("a"), of("a"))
        await store.pause(Q, None)
        assert await take_ids(store) == []
        await store.change([Remove(first)])
        assert await states(store, second) == ["ready"]
        await store.pause(Q, 0)
        assert await take_ids(store) == [second]


async def done(store: Store, job: Job) -> None:
    assert await store.settle([Done(job.lease)]) == []


async def bury(store: Store, job: Job) -> None:
    assert await store.settle([Bury(job.lease, "x")]) == []


async def retry_later(store: Store, job: Job) -> None:
    assert await store.settle([Retry(job.lease, delay=9.0)]) == []


async def cancel(store: Store, job: Job) -> None:
    assert await store.change([Cancel(job.id)]) == 1


async def remove(store: Store, job: Job) -> None:
    assert await store.change([Remove(job.id)]) == 1


async def replace_later(store: Store, job: Job) -> None:
    (answer,) = await store.enqueue([NewJob(Q, key="k", on_duplicate="replace", delay=9)])
    assert (answer.id, answer.what) == (job.id, "replaced")


async def purge(store: Store, job: Job) -> None:
    assert await store.purge(Q, "taken") == 1


WAYS: dict[str, Callable[[Store, Job], Awaitable[None]]] = {
    "done": done,
    "bury": bury,
    "retry later": retry_later,
    "cancel": cancel,
    "remove": remove,
    "replace": replace_later,
    "purge": purge,
}


class TestPlaceInALane(Suite):
    """What frees a place, and who gets it."""

    @pytest.mark.parametrize("way", WAYS)
    async def test_whatever_ends_a_run_lets_the_next_in_with_the_same_step(self, store: Store, way: str) -> None:
        await store.set_lanes(Q, ONE)
        first, second, third = await add(store, of("a", key="k"), of("a"), of("a"))
        job = await take_one(store)
        assert job.id == first
        assert await states(store, second, third) == ["held", "held"]
        await WAYS[way](store, job)
        assert await states(store, second, third) == ["ready", "held"]
        assert await take_ids(store) == [second]

    async def test_the_end_of_a_lease_does_too(self, store: Store, fixture: StoreFixture) -> None:
        await store.set_lanes(Q, ONE)
        first, second = await add(store, of("a", rank=1), of("a", rank=1))
        await take_one(store, lease=10)
        urgent = await add_one(store, of("a"))
        await fixture.advance(10)
        assert await states(store, urgent, first, second) == ["ready", "held", "held"]
        assert [job.id for job in await store.take(Q, 9, lease=10)] == [urgent]
        await fixture.advance(10)
        assert await take_ids(store) == [urgent]

    async def test_a_job_that_comes_back_at_once_stands_where_its_rank_says(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        first, second = await add(store, of("a"), of("a"))
        await store.settle([Retry((await take_one(store)).lease)])
        assert await states(store, first, second) == ["ready", "held"]
        await store.settle([Retry((await take_one(store)).lease, rank=1.0)])
        assert await states(store, first, second) == ["held", "ready"]

    async def test_a_batch_frees_as_many_places_as_it_had(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=2))
        ids = await add(store, *(of("a") for _ in range(5)), of("b"), of("b"), of("b"))
        jobs = await store.take(Q, 9)
        assert [job.id for job in jobs] == [ids[0], ids[1], ids[5], ids[6]]
        assert await store.settle([Done(jobs[0].lease), Bury(jobs[1].lease, "x"), Done(jobs[2].lease)]) == []
        assert await states(store, *ids[2:5], ids[7]) == ["ready", "ready", "held", "ready"]

    async def test_an_outcome_that_is_refused_frees_nothing(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        _, second = await add(store, of("a"), of("a"))
        job = await take_one(store)
        await done(store, job)
        taken = await take_one(store)
        assert len(await store.settle([Done(job.lease)])) == 1
        third = await add_one(store, of("a"))
        assert (taken.id, await states(store, second, third)) == (second, ["taken", "held"])

    async def test_the_best_held_job_comes_in(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        await add_one(store, of("a"))
        job = await take_one(store)
        low, high, low_too, high_too = await add(store, *(of("a", rank=rank) for rank in (3, 1, 3, 1)))
        await finish(store, job)
        for expected in (high, high_too, low, low_too):
            job = await take_one(store)
            assert job.id == expected
            await finish(store, job)

    async def test_a_better_job_takes_the_place_of_a_worse_one_in_the_line(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=2))
        low, lower = await add(store, of("a", rank=2), of("a", rank=3))
        critical = await add_one(store, of("a"))
        assert await states(store, critical, low, lower) == ["ready", "ready", "held"]
        same = await add_one(store, of("a", rank=2))
        assert await states(store, critical, low, lower, same) == ["ready", "ready", "held", "held"]
        assert await take_ids(store) == [critical, low]
        assert await add_one(store, of("a", rank=-1)) not in await take_ids(store)

    async def test_a_new_rank_may_change_who_is_held(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        first, second = await add(store, of("a", rank=1), of("a", rank=2, key="k"))
        assert await store.change([Rerank(second, 0.0)]) == 1
        assert await states(store, first, second) == ["held", "ready"]
        assert await store.change([Rerank(second, 1.5)]) == 1
        assert await states(store, first, second) == ["ready", "held"]
        await store.enqueue([NewJob(Q, key="k", on_duplicate="rerank", rank=-1)])
        assert await states(store, first, second) == ["held", "ready"]

    async def test_a_delayed_job_has_no_place(self, store: Store, fixture: StoreFixture) -> None:
        await store.set_lanes(Q, ONE)
        later, now = await add(store, NewJob(Q, lane="a", delay=10), of("a"))
        assert await states(store, later, now) == ["delayed", "ready"]
        await fixture.advance(10)
        assert await states(store, later, now) == ["ready", "held"]
        assert (await stats_of(store)).promoted == 1

    async def test_a_job_that_is_started_now_or_revived_may_be_held(self, store: Store) -> None:
        dead = await bury_one(store, of("a"))
        await store.set_lanes(Q, ONE)
        await add_one(store, of("a", rank=-1))
        later = await add_one(store, NewJob(Q, lane="a", delay=10))
        assert await store.change([StartNow(later), Revive(dead)]) == 2
        assert await states(store, later, dead) == ["held", "held"]
        assert await store.change([StartNow(later), Revive(dead), NotCrashed(dead)]) == 0

    async def test_each_change_is_a_step(self, store: Store) -> None:
        """The first job comes in again behind the last, which is removed only then."""
        await store.set_lanes(Q, FAIR)
        first, second, last = await add(store, of("a"), of("a"), of("a"))
        assert await store.change([Rerank(first, 0.5), Remove(last)]) == 2
        assert await turns(store) == {second: FIRST + TURN, first: FIRST + TURN + TURN + TURN}

    async def test_a_held_job_can_be_cancelled_and_removed(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=0))
        first, second = await add(store, NewJob(Q, lane="a", key="k", keep_for=HOUR), of("a", key="l"))
        assert await store.change([Cancel(first), Remove(second)]) == 2
        assert await states(store, first, second) == ["cancelled", "gone"]
        assert (await stats_of(store)).held == 0
        assert [each.what for each in await store.enqueue([of("a", key="k"), of("a", key="l")])] == ["created"] * 2

    async def test_a_held_job_keeps_its_key(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        _, held = await add(store, of("a"), of("a", key="k"))
        await take_one(store)
        answers = await store.enqueue(
            [
                NewJob(Q, key="k"),
                NewJob(Q, key="k", on_duplicate="attach", waiter=b"w"),
                NewJob(Q, b"new", key="k", on_duplicate="replace"),
            ]
        )
        assert [(each.id, each.what, each.waiters) for each in answers] == [
            (held, "kept", 0),
            (held, "attached", 1),
            (held, "replaced", 1),
        ]
        seen = await store.look(ByKey(Q, "k"), waiters_after=0, ahead=True)
        assert seen.job is not None
        assert (seen.job.state, seen.job.data, seen.job.lane, seen.waiters, seen.ahead) == (
            "held",
            b"new",
            "a",
            (b"w",),
            None,
        )

    async def test_follow_ups_and_reports_know_lanes(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        await store.set_lanes(REPORTS, Lanes(limits={"a": 0}, fair=True))
        _, second = await add(store, NewJob(Q, lane="a", key="k", reports_to="f"), of("a"))
        job = await take_one(store)
        assert await store.settle([Done(job.lease, [of("a", rank=-1), of("a")])]) == []
        assert await states(store, second) == ["held"]
        assert (await stats_of(store)).ready == 1
        assert (await stats_of(store, REPORTS)).ready == 1
        await take_one(store)
        assert await store.purge(Q, "held", limit=1) == 1
        assert await states(store, second) == ["gone"]

    async def test_a_wait_is_no_waiting_for_what_is_held(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        await add(store, of("a"), of("a"))
        job = await take_one(store, lease=HOUR)
        assert not await store.wait([Q], 0)
        waiting = await begin_wait(store, Q)
        await finish(store, job)
        assert await waiting

    async def test_a_wait_hears_of_other_rules(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=0))
        await add(store, of("a"))
        waiting = await begin_wait(store, Q)
        await store.set_lanes(Q, ONE)
        assert await waiting

    async def test_a_wait_in_another_handle_hears_of_a_place(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        other = await fixture.open()
        await store.set_lanes(Q, ONE)
        await add(store, of("a"), of("a"))
        job = await take_one(store, lease=HOUR)
        waiting = await begin_wait(other, Q)
        await finish(store, job)
        assert await waiting
        await other.close()


class TestTotal(Suite):
    async def test_so_many_run_at_once_with_a_lane_or_without(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(total=3))
        ids = await add(store, of("a"), of(None), of("b"), of("a"), of(None))
        assert await take_ids(store, count=2) == ids[:2]
        jobs = await store.take(Q, 9)
        assert [job.id for job in jobs] == [ids[2]]
        assert await take_ids(store) == []
        assert (await stats_of(store)).ready == 2
        assert (await store.look(Head(Q))).job is None
        await finish(store, jobs[0])
        assert await take_ids(store) == [ids[3]]

    async def test_a_wait_sleeps_until_one_has_ended(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(total=1))
        await add(store, of("a"), of(None))
        job = await take_one(store, lease=HOUR)
        waiting = await begin_wait(store, Q)
        await finish(store, job)
        assert await waiting

    async def test_a_wait_hears_of_a_higher_total(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(total=0))
        await add(store, of("a"))
        waiting = await begin_wait(store, Q)
        await store.set_lanes(Q, Lanes(total=1))
        assert await waiting
        assert len(await take_ids(store)) == 1

    async def test_a_lease_that_ends_makes_room(self, store: Store, fixture: StoreFixture) -> None:
        await store.set_lanes(Q, Lanes(total=1))
        first, second = await add(store, of(None), of(None))
        await take_one(store, lease=10)
        await fixture.advance(10)
        assert await store.wait([Q], 0)
        assert await take_ids(store) == [first]
        assert await states(store, second) == ["ready"]


NEAR, FAR = f"{Q}.near", f"{Q}.far"
"""Two queues of one family: on a Redis Cluster only those can share limits."""


def shared(limit: int | None = 1, **rules: Any) -> Lanes:
    return Lanes(limit=limit, shared=Q, **rules)


async def share(store: Store, rules: Lanes | None = None) -> None:
    for queue in (NEAR, FAR):
        await store.set_lanes(queue, rules or shared())


def at(queue: str, lane: str | None = "a", *, rank: float = 0.0, key: str | None = None) -> NewJob:
    return NewJob(queue, rank=rank, lane=lane, key=key)


async def take_from(store: Store, queue: str, lease: float = 60.0) -> list[int]:
    return [job.id for job in await store.take(queue, 100, lease=lease)]


class TestSharedLimits(Suite):
    """A lane's limit holds for all queues that share it together."""

    async def test_a_place_is_taken_for_all_of_them(self, store: Store) -> None:
        await share(store, shared(2))
        ids = await add(store, at(NEAR), at(FAR), at(NEAR), at(FAR), at(FAR, "b"), at(FAR, None))
        assert await states(store, *ids) == ["ready", "ready", "held", "held", "ready", "ready"]
        assert (await take_from(store, NEAR), await take_from(store, FAR)) == ([ids[0]], [ids[1], *ids[4:]])
        assert await states(store, ids[2], ids[3]) == ["held", "held"]

    async def test_the_best_job_of_all_of_them_comes_in(self, store: Store) -> None:
        await share(store)
        first, low, high, low_too = await add(store, at(NEAR), at(NEAR, rank=2), at(FAR, rank=1), at(FAR, rank=2))
        for queue, expected in ((NEAR, first), (FAR, high), (NEAR, low), (FAR, low_too)):
            assert await states(store, expected) == ["ready"]
            (job,) = await store.take(queue, 9)
            assert job.id == expected
            await finish(store, job)

    async def test_a_better_job_takes_the_place_of_a_worse_one_of_another_queue(self, store: Store) -> None:
        await share(store)
        (worse,) = await add(store, at(NEAR, rank=1))
        better, same = await add(store, at(FAR), at(NEAR))
        assert await states(store, worse, better, same) == ["held", "ready", "held"]
        assert await take_from(store, NEAR) == []

    async def test_the_end_of_a_run_lets_a_job_of_another_queue_in(self, store: Store) -> None:
        await share(store)
        job, held = await add(store, at(NEAR, key="k"), at(FAR))
        (taken,) = await store.take(NEAR, 9)
        assert (taken.id, await states(store, held)) == (job, ["held"])
        await finish(store, taken)
        assert await states(store, held) == ["ready"]

    @pytest.mark.parametrize("way", ["bury", "retry later", "cancel", "remove"])
    async def test_whatever_ends_it(self, store: Store, way: str) -> None:
        await share(store)
        _, held = await add(store, at(NEAR), at(FAR))
        (taken,) = await store.take(NEAR, 9)
        await WAYS[way](store, taken)
        assert await take_from(store, FAR) == [held]

    async def test_so_does_the_end_of_a_lease_though_nobody_looks_at_its_queue(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        await share(store)
        lost, held = await add(store, at(NEAR, rank=1), at(FAR, rank=1))
        assert await take_from(store, NEAR, 10) == [lost]
        (urgent,) = await add(store, at(FAR))
        assert await states(store, urgent) == ["held"]
        await fixture.advance(10)
        assert await take_from(store, FAR) == [urgent]
        assert await states(store, lost, held) == ["held", "held"]

    async def test_a_start_time_elsewhere_takes_the_place(self, store: Store, fixture: StoreFixture) -> None:
        await share(store)
        (later,) = await add(store, NewJob(NEAR, lane="a", delay=10))
        (held,) = await add(store, at(FAR, rank=1))
        await fixture.advance(10)
        assert await take_from(store, FAR) == []
        assert await states(store, later, held) == ["ready", "held"]

    async def test_waiting_ends_when_the_place_is_free(self, store: Store) -> None:
        await share(store)
        await add(store, at(NEAR), at(FAR))
        (taken,) = await store.take(NEAR, 9)
        assert not await store.wait([FAR], 0)
        waiting = await begin_wait(store, FAR)
        await finish(store, taken)
        assert await waiting

    async def test_waiting_ends_with_the_lease_of_another_queue(self, store: Store, fixture: StoreFixture) -> None:
        await share(store)
        await add(store, at(FAR, rank=1))
        await take_from(store, FAR, 10)
        (urgent,) = await add(store, at(NEAR))
        waiting = await begin_wait(store, NEAR)
        await fixture.advance(10)
        assert await waiting
        assert await take_from(store, NEAR) == [urgent]

    async def test_the_lowest_limit_holds(self, store: Store) -> None:
        await store.set_lanes(NEAR, shared(3, limits={"b": None}))
        await store.set_lanes(FAR, shared(2, limits={"c": 1, "d": None}))
        ids = await add(store, *(at(queue, lane) for lane in "abcd" for queue in (NEAR, FAR, NEAR, FAR)))
        found = await states(store, *ids)
        assert {lane: found[4 * n : 4 * n + 4].count("ready") for n, lane in enumerate("abcd")} == {
            "a": 2, "b": 2, "c": 1, "d": 3,
        }  # fmt: skip

    async def test_turns_and_totals_are_those_of_each_queue(self, store: Store) -> None:
        await store.set_lanes(NEAR, shared(9, fair=True))
        await store.set_lanes(FAR, shared(9, total=1))
        ids = await add(store, at(FAR), at(FAR), at(NEAR), at(NEAR), at(NEAR, "b"))
        assert await take_from(store, NEAR) == [ids[2], ids[4], ids[3]]
        assert await take_from(store, FAR) == ids[:1]

    async def test_to_begin_to_share_holds_back_at_once(self, store: Store) -> None:
        await store.set_lanes(NEAR, shared())
        await store.set_lanes(FAR, ONE)
        ids = await add(store, at(NEAR, rank=1), at(FAR))
        assert await states(store, *ids) == ["ready", "ready"]
        await store.set_lanes(FAR, shared())
        assert await states(store, *ids) == ["held", "ready"]

    @pytest.mark.parametrize("rules", [None, ONE])
    async def test_to_share_no_more_lets_in_at_once(self, store: Store, rules: Lanes | None) -> None:
        await share(store)
        ids = await add(store, at(NEAR), at(FAR))
        assert await states(store, *ids) == ["ready", "held"]
        await store.set_lanes(NEAR, rules)
        assert await states(store, *ids) == ["ready", "ready"]

    async def test_a_higher_limit_in_one_of_them_lets_in_elsewhere(self, store: Store) -> None:
        await store.set_lanes(NEAR, shared(1))
        await store.set_lanes(FAR, shared(2))
        ids = await add(store, at(NEAR), at(FAR))
        assert await states(store, *ids) == ["ready", "held"]
        await store.set_lanes(NEAR, shared(2))
        assert await states(store, *ids) == ["ready", "ready"]

    async def test_a_paused_queue_keeps_its_places(self, store: Store) -> None:
        await share(store)
        ids = await add(store, at(NEAR), at(FAR))
        await store.pause(NEAR, None)
        assert (await take_from(store, FAR), await states(store, *ids)) == ([], ["ready", "held"])

    async def test_a_crowd_over_both_queues_is_never_over_the_limit(self, store: Store) -> None:
        await share(store, shared(2, fair=True))
        await add(store, *(at(queue, lane) for lane in "ab" for _ in range(10) for queue in (NEAR, FAR)))
        running: Counter[str | None] = Counter()
        done = 0

        async def work(queue: str) -> None:
            nonlocal done
            while done < 40:
                for job in await store.take(queue, 2):
                    running[job.lane] += 1
                    assert running[job.lane] <= 2
                    await asyncio.sleep(0)
                    running[job.lane] -= 1  # before: a place is free from the moment of the settle
                    await finish(store, job)
                    done += 1
                await asyncio.sleep(0)

        await asyncio.wait_for(asyncio.gather(*(work(queue) for queue in (NEAR, FAR) * 2)), 60)


class TestFairLanes(Suite):
    async def test_lanes_take_turns(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        await add(store, *(of("a") for _ in range(4)), *(of("b") for _ in range(3)), of("c"))
        assert await order(store) == "abcababa"

    async def test_a_lane_that_comes_waits_for_one_turn_of_each(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        await add(store, *(of(lane) for lane in "aaaaaaaabbbbbbbb"))
        assert await order(store, 7) == "abababa"
        await add(store, *(of("c") for _ in range(3)), of("d"))
        assert sorted(await order(store, 4)) in (["a", "b", "c", "d"], ["b", "b", "c", "d"])

    async def test_many_jobs_of_one_lane_delay_another_by_a_turn(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        await add(store, *(of("z") for _ in range(500)))
        await add(store, *(of(f"c{n}") for n in range(20)))
        lanes = [job.lane for job in await store.take(Q, 24)]
        assert set(lanes) == {"z", *(f"c{n}" for n in range(20))}

    async def test_jobs_of_a_lane_that_is_idle_for_a_while_do_not_come_first_for_long(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        await add(store, *(of("a") for _ in range(100)))
        assert await order(store, 50) == "a" * 50
        await add(store, *(of("b") for _ in range(50)))
        assert Counter(await order(store, 20)) == {"a": 10, "b": 10}

    async def test_levels_stay_above_turns(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        await add(store, *(of("a", rank=2) for _ in range(3)), of("b", rank=2), *(of("a") for _ in range(3)), of("b"))
        assert await order(store) == "abaa" + "abaa"

    async def test_a_heavy_lane_has_more_turns(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(fair=True, weights={"a": 2, "c": 0.5}))
        await add(store, *(of(lane) for lane in "aaaaaaaaaaaabbbbbbccc"))
        assert Counter(await order(store, 14)) == {"a": 8, "b": 4, "c": 2}

    async def test_a_turn_may_be_as_long_as_the_cost(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(fair=True, by_cost=True))
        await add(
            store,
            *(of("a", cost=3) for _ in range(4)),
            *(of("b", cost=1) for _ in range(9)),
            *(of("c") for _ in range(9)),
        )
        assert Counter(await order(store, 14)) == {"a": 2, "b": 6, "c": 6}

    async def test_a_job_that_fails_at_once_and_again_starves_nobody(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        await add(store, of("a"), *(of("b") for _ in range(4)))
        ran = ""
        for _ in range(8):
            job = await take_one(store)
            ran += job.lane or ""
            await store.settle([Retry(job.lease) if job.lane == "a" else Done(job.lease)])
        assert ran == "abababab"

    async def test_jobs_without_a_lane_come_first_in_their_level(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        await add(store, of("a"), of("a"), of("b"), of(None), of(None, rank=1), of("c", rank=1))
        assert await order(store) == "-aba-c"

    async def test_a_limit_and_turns_hold_together(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=2, fair=True))
        await add(store, *(of(lane) for lane in "aaaaabbbc"))
        jobs = await store.take(Q, 9)
        assert "".join(job.lane or "" for job in jobs) == "abcab"
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert await order(store) == "abaa"

    async def test_a_turn_is_shown_and_orders_the_pages(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        ids = await add(store, of("a"), of("a"), of("b"), of("b"))
        shown = await store.browse(Q, "ready")
        first = TURN * NEWCOMER
        expected = [(ids[0], first), (ids[2], first + first), (ids[1], first + TURN), (ids[3], first + first + TURN)]
        assert [(job.id, job.turn) for job in shown] == expected
        assert {job.rank for job in shown} == {0.0}
        after = await store.browse(Q, "ready", after=shown[1].cursor(), limit=1)
        assert [job.id for job in after] == [ids[1]]
        seen = await store.look(Head(Q), ahead=True)
        assert seen.job is not None
        assert (seen.job.id, seen.ahead) == (ids[0], 0)
        places = [(await store.look(ByKey(Q, "k"), ahead=True)).ahead for _ in await add(store, of("c", key="k"))]
        assert places == [2]

    async def test_a_line_that_is_not_fair_goes_by_rank(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=9, weights={"b": 2}, by_cost=True))
        await add(store, *(of(lane) for lane in "aaab"))
        assert await order(store) == "aaab"

    async def test_a_turn_is_one_long_without_by_cost(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        await add(store, *(of("a", cost=3) for _ in range(2)), *(of("b", cost=1) for _ in range(3)))
        assert await order(store) == "ababb"

    async def test_a_turn_is_exact(self, store: Store) -> None:
        """It is as long as the job's own cost by the weight, after the last of the lane or the lowest of all lanes; a
        job without a lane counts for nothing."""
        await store.set_lanes(Q, Lanes(fair=True, weights={"b": 3}, by_cost=True))
        a, a_next, b, b_next = await add(store, of("a", cost=2), of("a", cost=5), of("b", cost=2), of("b"))
        of_a = 2 * TURN * NEWCOMER
        of_b = of_a + 2 / 3 * TURN * NEWCOMER
        after = {b: of_b, b_next: of_b + 1 / 3 * TURN, a_next: of_a + 5 * TURN}
        assert await turns(store) == {a: of_a, **after}
        assert await take_ids(store, count=1) == [a]
        alone, again, c = await add(store, of(None), of("b"), of("c", cost=4))
        await add(store, NewJob("other", lane="c"))
        new = {alone: 0.0, again: after[b_next] + 1 / 3 * TURN, c: of_b + 4 * TURN * NEWCOMER}
        assert await turns(store) == {**after, **new}

    async def test_the_lanes_of_a_step_come_by_name(self, store: Store) -> None:
        """The first of them holds the job back whose turn counts for the other."""
        await store.set_lanes(Q, Lanes(limit=1, limits={"d": 2}, fair=True))
        worse, gone, left = await add(store, of("b", rank=0.5), of("d"), of("d"))
        await store.change([Remove(gone)])
        last = FIRST + FIRST + TURN
        assert await turns(store) == {worse: FIRST, left: last}
        other, better = await add(store, of("c"), of("b", rank=0.25))
        assert await turns(store) == {left: last, other: last + FIRST, better: last + FIRST}

    async def test_a_call_is_one_step(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        second, first = await add(store, of("a", rank=0.5), of("a"))
        assert await turns(store) == {first: FIRST, second: FIRST + TURN}

    async def test_a_turn_never_leaves_its_level(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(fair=True, weights={"a": 1 / 1000}, by_cost=True))
        ids = await add(store, *(of("a", cost=1 << 40) for _ in range(3)), of("a", rank=1))
        assert await turns(store) == {**dict.fromkeys(ids[:3], 1 - TURN), ids[3]: 1 + 1000 * TURN * NEWCOMER}
        assert await take_ids(store) == ids

    async def test_a_replaced_job_has_another_turn(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        ids = await add(store, of("a", key="k"), of("a"), of("b"))
        await store.enqueue([NewJob(Q, key="k", on_duplicate="replace")])
        assert await turns(store) == {
            ids[1]: FIRST + TURN, ids[2]: FIRST + FIRST, ids[0]: FIRST + TURN + TURN
        }  # fmt: skip

    async def test_a_new_rank_is_another_turn(self, store: Store) -> None:
        await store.set_lanes(Q, FAIR)
        ids = await add(store, of("a"), of("a"), of("b"))
        await store.change([Rerank(ids[0], 1.0), Rerank(ids[0], 0.0)])
        assert await take_ids(store) == [ids[2], ids[1], ids[0]]

    async def test_jobs_that_are_there_keep_their_place_when_turns_begin(self, store: Store) -> None:
        ids = await add(store, of("a"), of("a"), of("a"), of("b"))
        await store.set_lanes(Q, FAIR)
        late = await add(store, of("b"), of("a"))
        assert await take_ids(store) == [*ids, *late]


class TestLanesInfo(Suite):
    async def test_shows_the_rules_and_the_lanes_with_most_waiting_first(self, store: Store) -> None:
        assert await store.lanes("unknown") == LanesInfo(None, (), 0)
        rules = Lanes(limit=1, limits={"a": 2, "ü": None}, fair=True, weights={"b": 0.5}, by_cost=True, total=4)
        await store.set_lanes(Q, rules)
        await add(store, *(of(lane) for lane in "aaabbbbcde"), of(None), NewJob(Q, lane="f", delay=9))
        assert {job.lane for job in await store.take(Q, 2)} == {None, "a"}
        found = await store.lanes(Q)
        waiting = (LaneInfo("b", 1, 3, 0), LaneInfo("a", 1, 1, 1), *(LaneInfo(lane, 1, 0, 0) for lane in "cde"))
        assert found == LanesInfo(rules, waiting, 5)
        assert await store.lanes(Q, limit=1) == LanesInfo(rules, waiting[:1], 5)
        assert await store.lanes(Q, limit=0) == LanesInfo(rules, (), 0), "the rules alone"

    async def test_rules_that_are_taken_away_are_gone(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        await store.set_lanes(Q, None)
        assert await store.lanes(Q) == LanesInfo(None, (), 0)

    async def test_a_lane_without_jobs_is_in_no_list(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=1, fair=True))
        await add(store, of("a"), of("a"), of("b"))
        await order(store)
        assert (await store.lanes(Q)).lanes == ()


class TestLaneStorm(Suite):
    limit = 30.0

    async def test_many_lanes_that_are_due_at_once(self, store: Store, fixture: StoreFixture) -> None:
        await store.set_lanes(Q, Lanes(limit=2, fair=True))
        count = DUE_AT_ONCE + 300
        await add(store, *(NewJob(Q, lane=f"c{n % 400}", delay=10) for n in range(count)))
        await fixture.advance(10)
        ran: Counter[str] = Counter()
        running: Counter[str] = Counter()
        while jobs := await store.take(Q, 100, lease=HOUR):
            running = Counter(job.lane or "" for job in jobs)
            assert max(running.values()) <= 2
            ran += running
            assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert sum(ran.values()) == count

    async def test_rules_for_many_lanes(self, store: Store) -> None:
        ids = await add(store, *(of(f"c{n % 700}") for n in range(2100)))
        await store.set_lanes(Q, ONE)
        stats = await stats_of(store)
        assert (stats.ready, stats.held) == (700, 1400)
        await store.set_lanes(Q, None)
        assert await take_ids(store, count=3000) == ids


class TestLaneRaces(Suite):
    limit = 60.0

    async def test_never_more_than_the_limit_run_at_once_whoever_takes(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        """Several handles take, settle and enqueue at once. Counted here: what is between a take and its settle."""
        handles = [store, *([await fixture.open() for _ in range(3)] if fixture.shared else [])]
        await store.set_lanes(Q, Lanes(limit=2, fair=True))
        running: Counter[str] = Counter()
        ended = 0
        total = 240

        async def enqueue(handle: Store) -> None:
            for n in range(total // (4 * len(handles))):
                await add(handle, *(of("abc"[(n + k) % 3], rank=k % 2) for k in range(4)))

        async def work(handle: Store) -> None:
            nonlocal ended
            while ended < total // (4 * len(handles)) * 4 * len(handles):
                jobs = await handle.take(Q, 3, lease=HOUR)
                running.update(job.lane or "" for job in jobs)
                assert max(running.values(), default=0) <= 2, running
                await asyncio.sleep(0)
                running.subtract(job.lane or "" for job in jobs)
                if jobs:
                    assert await handle.settle([Done(job.lease) for job in jobs]) == []
                    ended += len(jobs)
                else:
                    await asyncio.sleep(0.001)

        await asyncio.gather(*map(enqueue, handles), *map(work, handles), *map(work, handles))
        left: Stats = await store.stats()
        assert left.queues[Q].total == 0
        for handle in handles[1:]:
            await handle.close()
