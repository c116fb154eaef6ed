"""`settle`: outcomes of taken jobs, fenced by their leases, all in one atomic step."""

from __future__ import annotations

from typing import Any, cast

import pytest

from accoda.errors import InvalidInput
from accoda.limits import MOMENT
from accoda.model import Bury, Done, Lease, NewJob, Outcome, Refused, Retry
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    find,
    finish,
    info_of,
    lost,
    state_of,
    stats_of,
    take_one,
    taken,
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture


class TestSettle(Suite):
    async def test_of_nothing_does_nothing(self, store: Store) -> None:
        assert await store.settle([]) == []

    async def test_settles_a_mixed_batch_at_once(self, store: Store) -> None:
        done, retried, buried, left = await taken(store, 4)
        assert await store.settle([Done(done.lease), Retry(retried.lease), Bury(buried.lease, "no")]) == []
        states = [await state_of(store, job.id) for job in (done, retried, buried, left)]
        assert states == ["gone", "ready", "dead", "taken"]
        stats = await stats_of(store)
        assert (stats.done, stats.retried, stats.buried, stats.total) == (1, 1, 1, 3)

    async def test_settles_jobs_of_several_queues(self, store: Store) -> None:
        await add(store, NewJob("a"), NewJob("b"))
        assert await store.settle([Done((await take_one(store, queue)).lease) for queue in ("a", "b")]) == []
        assert (await stats_of(store, "a")).done == (await stats_of(store, "b")).done == 1

    async def test_applies_the_good_and_gives_back_the_lost(self, store: Store) -> None:
        first, second, third = await taken(store, 3)
        await finish(store, second)
        refused = await store.settle([Done(first.lease), Done(second.lease), Bury(third.lease, "x")])
        assert refused == lost(second.lease)
        assert [await state_of(store, job.id) for job in (first, second, third)] == ["gone", "gone", "dead"]

    async def test_accepts_the_same_lease_only_once_in_a_call(self, store: Store) -> None:
        jobs = await taken(store, 3)
        pairs: list[list[Outcome]] = [
            [Done(jobs[0].lease), Done(jobs[0].lease, then=[NewJob("next")])],
            [Retry(jobs[1].lease), Done(jobs[1].lease, then=[NewJob("next")])],
            [Bury(jobs[2].lease, "x"), Retry(jobs[2].lease)],
        ]
        assert await store.settle([outcome for pair in pairs for outcome in pair]) == lost(*(j.lease for j in jobs))
        assert [await state_of(store, job.id) for job in jobs] == ["gone", "ready", "dead"]
        stats = await stats_of(store)
        assert (stats.done, stats.retried, stats.buried) == (1, 1, 1)
        assert (await stats_of(store, "next")).total == 0

    @pytest.mark.parametrize("kind", ["done", "retry", "bury"])
    async def test_refuses_leases_that_are_not_current(self, store: Store, kind: str) -> None:
        (job,) = await taken(store)
        (waiting,) = await add(store, NewJob(Q, delay=60))
        before = await info_of(store, job.id)
        at = job.lease.taken_at
        wrong = [
            Lease("other", job.id, 0, at),
            Lease(Q, job.id, 1, at),
            Lease(Q, job.id + 1_000_000, 0, at),
            Lease(Q, waiting, 0, at),
            Lease(Q, waiting, 0, 0),
            Lease(Q, 0, 0, at),
            Lease(Q, (1 << 63) - 1, 0, at),
            Lease(Q, job.id, (1 << 63) - 1, at),
            Lease("no queue at all", job.id, 0, at),
            *(Lease(Q, job.id, 0, moment) for moment in (at - 1, at + 1, 0, at * 1000, MOMENT)),
        ]
        outcomes: dict[str, list[Outcome]] = {
            "done": [Done(lease, then=[NewJob("next")]) for lease in wrong],
            "retry": [Retry(lease) for lease in wrong],
            "bury": [Bury(lease, "x", then=[NewJob("next")]) for lease in wrong],
        }
        assert await store.settle(outcomes[kind]) == lost(*wrong)
        assert await info_of(store, job.id) == before
        assert await state_of(store, waiting) == "delayed"
        stats = await stats_of(store)
        assert (stats.done, stats.retried, stats.buried, stats.total) == (0, 0, 0, 2)
        assert (await stats_of(store, "next")).total == 0

    @pytest.mark.parametrize("after", [Done, Retry])
    async def test_refuses_an_old_lease_while_a_new_one_runs(
        self, store: Store, fixture: StoreFixture, after: Any
    ) -> None:
        id = await add_one(store, NewJob(Q, b"x"))
        late = await take_one(store, lease=10)
        await fixture.advance(10)
        current = await take_one(store, lease=HOUR)
        before = await info_of(store, id)
        assert await store.settle([after(late.lease)]) == lost(late.lease)
        assert await info_of(store, id) == before
        await finish(store, current)
        assert (await stats_of(store)).done == 1

    @pytest.mark.parametrize("bad", [None, "done", 3])
    async def test_applies_none_of_the_outcomes_if_one_is_no_outcome(self, store: Store, bad: object) -> None:
        (job,) = await taken(store)
        with pytest.raises(InvalidInput):
            await store.settle([Done(job.lease, then=[NewJob("next")]), cast(Any, bad)])
        assert await state_of(store, job.id) == "taken"
        assert (await stats_of(store, "next")).total == 0


class TestGrown(Suite):
    async def test_done_is_refused_when_more_wait_than_were_seen(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, key="k", waiter=b"1"))
        job = await take_one(store)
        await store.enqueue([NewJob(Q, key="k", waiter=b"2", on_duplicate="attach")])
        refused = await store.settle([Done(job.lease, then=[NewJob("deliver")], waiters=1)])
        assert refused == [Refused(job.lease, "grown")]
        assert await state_of(store, id) == "taken"
        assert (await stats_of(store, "deliver")).total == 0
        assert await waiters_of(store, job.lease) == [b"1", b"2"]
        assert await store.settle([Done(job.lease, then=[NewJob("deliver")] * 2, waiters=2)]) == []
        stats = await stats_of(store)
        assert (stats.done, stats.total, (await stats_of(store, "deliver")).ready) == (1, 0, 2)

    async def test_done_that_saw_no_waiter_is_refused_when_there_is_one(self, store: Store) -> None:
        await add_one(store, NewJob(Q, key="k"))
        job = await take_one(store)
        await store.enqueue([NewJob(Q, key="k", waiter=b"1", on_duplicate="attach")])
        assert await store.settle([Done(job.lease, waiters=0)]) == [Refused(job.lease, "grown")]

    async def test_done_that_saw_enough_is_accepted(self, store: Store) -> None:
        await add_one(store, NewJob(Q, key="k", waiter=b"1"))
        job = await take_one(store)
        assert await store.settle([Done(job.lease, waiters=5)]) == []

    async def test_done_that_does_not_ask_is_accepted(self, store: Store) -> None:
        await add_one(store, NewJob(Q, key="k", waiter=b"1"))
        job = await take_one(store)
        assert await store.settle([Done(job.lease)]) == []

    async def test_a_lost_lease_is_lost_and_not_grown(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q, key="k", waiter=b"1"))
        job = await take_one(store, lease=10)
        await fixture.advance(10)
        assert await store.settle([Done(job.lease, waiters=0)]) == lost(job.lease)

    async def test_the_rest_of_the_batch_is_applied(self, store: Store) -> None:
        await add(store, NewJob(Q, key="k", waiter=b"1"), NewJob(Q))
        grown, plain = await store.take(Q, 2)
        refused = await store.settle([Done(grown.lease, waiters=0), Done(plain.lease)])
        assert refused == [Refused(grown.lease, "grown")]
        assert await find(store, plain.id) is None

    async def test_a_new_job_under_the_key_starts_with_its_own_waiters(self, store: Store) -> None:
        await add_one(store, NewJob(Q, key="k", waiter=b"old"))
        await finish(store, await take_one(store))
        await add_one(store, NewJob(Q, key="k", waiter=b"new"))
        assert await waiters_of(store, (await take_one(store)).lease) == [b"new"]
