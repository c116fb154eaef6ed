"""`Cancel`: a job that waits or runs ends as cancelled, and the worker that runs it is told so."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from accoda.model import (
    CANCELLED_FOR,
    ENDED,
    Bury,
    ByKey,
    Cancel,
    Done,
    Head,
    Lease,
    NewJob,
    Outcome,
    Refused,
    Remove,
    Retry,
    State,
)
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    close_to,
    find,
    info_of,
    lost,
    one_in_each,
    state_of,
    stats_of,
    take_ids,
    take_one,
)
from accoda.testing.conformance.keys import HOLDING, holder_in
from accoda.testing.conformance.look import head_of, joins
from accoda.testing.store_fixture import StoreFixture


def cancelled(*leases: Lease) -> list[Refused]:
    return [Refused(lease, "cancelled") for lease in leases]


class TestCancel(Suite):
    @pytest.mark.parametrize("state", HOLDING)
    async def test_keeps_the_job_as_long_as_told(self, store: Store, fixture: StoreFixture, state: State) -> None:
        new = NewJob(Q, b"data", rank=3, keep_for=90, delay=HOUR if state == "delayed" else None)
        id = await add_one(store, new)
        if state == "taken":
            await take_one(store, lease=HOUR)
        await fixture.advance(2)
        assert await store.change([Cancel(id)]) == 1
        info = await info_of(store, id)
        assert (info.state, info.data, info.rank, info.result) == ("cancelled", b"data", 3, None)
        assert (info.keep_for, info.attempts, info.lease_until) == (90, 0, None)
        assert close_to(fixture, info.ended_at, await fixture.now())
        assert await store.browse(Q, "cancelled") == [info]
        await fixture.advance(80)
        assert await state_of(store, id) == "cancelled"
        await fixture.advance(10)
        assert await find(store, id) is None
        assert await store.browse(Q, "cancelled") == []

    @pytest.mark.parametrize("delay", [None, HOUR])
    async def test_of_a_waiting_job_that_is_not_kept_deletes_it(self, store: Store, delay: float | None) -> None:
        id = await add_one(store, NewJob(Q, delay=delay))
        assert await store.change([Cancel(id)]) == 1
        assert (await stats_of(store)).cancelled == 1
        assert await find(store, id) is None
        assert await store.browse(Q, "cancelled") == []

    @pytest.mark.parametrize("keep_for", [0, 1.5])
    async def test_of_a_running_job_keeps_it_until_its_worker_can_be_told(
        self, store: Store, fixture: StoreFixture, keep_for: float
    ) -> None:
        id = await add_one(store, NewJob(Q, keep_for=keep_for))
        job = await take_one(store, worker="w")
        assert await store.change([Cancel(id)]) == 1
        info = await info_of(store, id)
        assert (info.keep_for, info.worker, info.taken_at) == (CANCELLED_FOR, "w", job.lease.taken_at)
        await fixture.advance(CANCELLED_FOR - 10)
        assert await state_of(store, id) == "cancelled"
        await fixture.advance(10)
        assert await find(store, id) is None

    @pytest.mark.parametrize("state", ENDED)
    async def test_leaves_jobs_alone_that_have_ended(self, store: Store, state: State) -> None:
        id = (await one_in_each(store))[state]
        before = await find(store, id)
        counts = await stats_of(store)
        assert await store.change([Cancel(id), Cancel(id, waiters=99)]) == 0
        assert await stats_of(store) == counts
        assert await find(store, id) == before

    @pytest.mark.parametrize("state", HOLDING)
    async def test_frees_the_key_at_once_and_leaves_no_waiter(self, store: Store, state: str) -> None:
        old = await holder_in(store, state)
        assert await store.change([Cancel(old.id, waiters=1)]) == 1
        assert (await store.look(ByKey(Q, "k"))).job is None
        assert await take_ids(store) == []
        (answer,) = await store.enqueue([joins("new")])
        assert (answer.what, answer.waiters) == ("created", 1)
        assert (await store.look(Head(Q), waiters_after=0)).waiters == (b"new",), "no waiter is inherited"
        assert await state_of(store, old.id) == "cancelled"

    @pytest.mark.parametrize("state", HOLDING)
    async def test_is_refused_if_more_wait_than_were_seen(self, store: Store, state: str) -> None:
        old = await holder_in(store, state)
        await store.enqueue([joins("second")])
        before = await info_of(store, old.id)
        assert await store.change([Cancel(old.id, waiters=0), Cancel(old.id, waiters=1)]) == 0
        assert await info_of(store, old.id) == before
        assert await store.change([Cancel(old.id, waiters=2)]) == 1

    async def test_counts_each_job_once_and_right(self, store: Store) -> None:
        new = [NewJob(Q, rank=-1), NewJob(Q, keep_for=9), NewJob(Q, delay=9, keep_for=9), NewJob(Q)]
        running, ready, delayed, _ = await add(store, *new)
        assert (await take_one(store, lease=HOUR)).id == running
        ids = [running, ready, delayed]
        assert await store.change([Cancel(id) for id in [*ids, *ids, 10**6]]) == 3
        stats = await stats_of(store)
        assert (stats.total, stats.ready, stats.delayed, stats.taken, stats.dead) == (1, 1, 0, 0, 0)
        assert (stats.cancelled, stats.done, stats.retried, stats.buried, stats.expired) == (3, 0, 0, 0, 0)

    async def test_leaves_nothing_that_comes_back(self, store: Store, fixture: StoreFixture) -> None:
        ids = await add(store, NewJob(Q, keep_for=HOUR), NewJob(Q, delay=5, keep_for=HOUR))
        await take_one(store, lease=5)
        assert await store.change([Cancel(id) for id in ids]) == 2
        await fixture.advance(60)
        assert await take_ids(store) == []
        assert [await state_of(store, id) for id in ids] == ["cancelled"] * 2
        assert (await stats_of(store)).expired == 0

    async def test_of_a_job_whose_lease_has_ended_finds_it_waiting(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, keep_for=HOUR))
        job = await take_one(store, lease=5)
        await fixture.advance(5)
        assert await store.change([Cancel(id)]) == 1
        assert await store.settle([Done(job.lease)]) == lost(job.lease), "its worker had lost it before"
        info, stats = await info_of(store, id), await stats_of(store)
        assert (info.state, info.attempts, info.crashes) == ("cancelled", 1, 1)
        assert (stats.total, stats.expired) == (0, 1)

    async def test_brings_the_next_in_line_to_the_head(self, store: Store) -> None:
        first, second = await add(store, NewJob(Q, keep_for=HOUR), NewJob(Q))
        assert await store.change([Cancel(first)]) == 1
        assert await head_of(store) == second


class TestLateHolderOfACancelledJob(Suite):
    @pytest.mark.parametrize("kind", ["done", "retry", "bury"])
    async def test_is_told_and_changes_nothing(self, store: Store, kind: str) -> None:
        id = await add_one(store, joins("a"))
        lease = (await take_one(store)).lease
        then = [NewJob("next")]
        outcomes: dict[str, Outcome] = {
            "done": Done(lease, then, b"late", waiters=1), "retry": Retry(lease), "bury": Bury(lease, "x", then),
        }  # fmt: skip
        assert await store.change([Cancel(id)]) == 1
        before = await info_of(store, id)
        assert await store.settle([outcomes[kind]]) == cancelled(lease)
        assert await store.extend([lease], HOUR) == cancelled(lease)
        assert await info_of(store, id) == before
        stats = await stats_of(store)
        assert (stats.done, stats.retried, stats.buried, (await stats_of(store, "next")).total) == (0, 0, 0, 0)

    async def test_is_told_so_until_the_record_is_gone(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        lease = (await take_one(store, lease=5)).lease
        await store.change([Cancel(id)])
        await fixture.advance(CANCELLED_FOR - 10)
        assert await store.extend([lease], 1) == cancelled(lease), "also after the moment at which its lease would end"
        await fixture.advance(10)
        assert await store.settle([Done(lease)]) == await store.extend([lease], 1) == lost(lease)

    async def test_learns_no_more_than_that_it_is_lost_if_the_job_was_removed(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        lease = (await take_one(store)).lease
        assert await store.change([Cancel(id), Remove(id, waiters=0), Remove(id)]) == 2
        assert await store.settle([Done(lease)]) == await store.extend([lease], 1) == lost(lease)

    async def test_is_told_only_if_it_was_the_last(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, keep_for=HOUR))
        first = (await take_one(store)).lease
        await store.settle([Retry(first)])
        second = (await take_one(store)).lease
        await store.change([Cancel(id)])
        others = [first, replace(second, taken_at=second.taken_at + 1), replace(second, queue="other")]
        assert await store.settle([Done(lease) for lease in others]) == lost(*others)
        assert await store.extend(others, HOUR) == lost(*others)
        assert await store.settle([Done(second)]) == cancelled(second)

    async def test_is_told_beside_others_of_its_batch(self, store: Store) -> None:
        await add(store, *(NewJob(Q) for _ in range(3)))
        one, two, three = (job.lease for job in await store.take(Q, 3))
        await store.change([Cancel(two.id)])
        wrong = replace(three, attempts=7)
        refused = [*lost(wrong), *cancelled(two)]
        assert await store.extend([wrong, one, two, three], HOUR) == refused
        assert await store.settle([Done(wrong), Done(one), Done(two), Retry(three)]) == refused
        stats = await stats_of(store)
        assert (stats.done, stats.retried, stats.total) == (1, 1, 1)

    async def test_does_not_touch_the_next_job_of_its_key(self, store: Store) -> None:
        id = await add_one(store, joins("a"))
        lease = (await take_one(store)).lease
        await store.change([Cancel(id)])
        (answer,) = await store.enqueue([joins("b")])
        assert await store.settle([Done(lease)]) == cancelled(lease)
        assert await take_ids(store) == [answer.id]


class TestCancelRaces(Suite):
    limit = 60.0

    async def test_with_an_outcome_at_the_same_moment_one_of_them_counts(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        other = await fixture.open() if fixture.shared else store
        try:
            for n in range(30):
                id = await add_one(store, NewJob(Q, keep_for=HOUR))
                lease = (await take_one(store)).lease
                settle, cancel = store.settle([Done(lease)]), other.change([Cancel(id)])
                if n % 2:
                    refused, applied = await asyncio.gather(settle, cancel)
                else:
                    applied, refused = await asyncio.gather(cancel, settle)
                assert (refused, applied) in (([], 0), (cancelled(lease), 1))
                assert await state_of(store, id) == ("cancelled" if applied else "done")
            assert (await stats_of(store)).total == 0
        finally:
            if other is not store:
                await other.close()
