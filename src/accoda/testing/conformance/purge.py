"""`purge` by age and by number, and that nothing is left behind by what has come and gone."""

from __future__ import annotations

import pytest

from accoda.model import ENDED, STATES, Bury, Cancel, Done, Job, Lanes, NewJob, Retry, Revive, State
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    WAITING,
    Q,
    Suite,
    add,
    add_one,
    bury_one,
    finish,
    lost,
    need_exact,
    one_in_each,
    state_of,
    stats_of,
    take_one,
)
from accoda.testing.store_fixture import StoreFixture

DAY = 24 * HOUR


async def end(store: Store, state: State, job: Job) -> None:
    """Bring a taken job to its end."""
    if state == "cancelled":
        assert await store.change([Cancel(job.id)]) == 1
        return
    assert await store.settle([Bury(job.lease, "x") if state == "dead" else Done(job.lease)]) == []


async def make(store: Store, state: State, count: int) -> list[int]:
    """Jobs in a state, in a queue where nothing else is ready."""
    await store.set_lanes(Q, Lanes(limits={"full": 0}))
    lane = "full" if state == "held" else None
    ids = await add(store, *[NewJob(Q, keep_for=HOUR, delay=DAY if state == "delayed" else None, lane=lane)] * count)
    if state not in WAITING:
        jobs = await store.take(Q, count, lease=DAY)
        assert [job.id for job in jobs] == ids
        for job in jobs if state != "taken" else ():
            await end(store, state, job)
    return ids


class TestPurge(Suite):
    @pytest.mark.parametrize("state", STATES)
    async def test_deletes_that_state_of_that_queue(self, store: Store, state: State) -> None:
        ids = await one_in_each(store)
        elsewhere = await add_one(store, NewJob("other"))
        assert await store.purge(Q, state) == 1
        for other, id in ids.items():
            assert await state_of(store, id) == ("gone" if other == state else other)
        assert await state_of(store, elsewhere) == "ready"
        assert await store.purge(Q, state) == 0

    async def test_frees_the_keys_and_ends_the_leases(self, store: Store) -> None:
        await add_one(store, NewJob(Q, key="k", waiter=b"w"))
        job = await take_one(store)
        assert await store.purge(Q, "taken") == 1
        assert await store.settle([Done(job.lease)]) == lost(job.lease)
        (answer,) = await store.enqueue([NewJob(Q, key="k")])
        assert (answer.what, answer.waiters) == ("created", 0)

    async def test_looks_at_the_present_moment(self, store: Store, fixture: StoreFixture) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q, delay=10))
        await take_one(store, lease=10)
        await fixture.advance(10)
        assert await store.purge(Q, "taken") == 0
        assert await store.purge(Q, "delayed") == 0
        assert await store.purge(Q, "ready") == 2
        assert [await state_of(store, id) for id in ids] == ["gone", "gone"]


class TestRetention(Suite):
    @pytest.mark.parametrize("state", STATES)
    async def test_takes_only_what_is_old_enough(self, store: Store, fixture: StoreFixture, state: State) -> None:
        ids = []
        for _ in range(3):
            ids += await make(store, state, 1)
            await fixture.advance(60)
        before = await fixture.now() - 90_000
        assert await store.purge(Q, state, before=before - 120_000) == 0
        assert await store.purge("other", state, before=before) == 0
        assert await store.purge(Q, state, before=before) == 2
        assert [await state_of(store, id) for id in ids] == ["gone", "gone", state]
        assert await store.purge(Q, state, before=before) == 0
        assert await store.purge(Q, state, before=await fixture.now() + 1) == 1

    @pytest.mark.parametrize("state", STATES)
    async def test_takes_no_more_than_the_limit(self, store: Store, state: State) -> None:
        ids = await make(store, state, 5)
        assert await store.purge(Q, state, limit=0) == 0
        assert await store.purge(Q, state, limit=2) == 2
        assert [await state_of(store, id) for id in ids] == ["gone", "gone", state, state, state]
        assert await store.purge(Q, state, limit=9) == 3
        assert await store.purge(Q, state, limit=9) == 0
        assert (await stats_of(store)).total == 0

    @pytest.mark.parametrize("state", ENDED)
    async def test_takes_those_first_that_ended_first(self, store: Store, fixture: StoreFixture, state: State) -> None:
        first, second, third = await add(
            store, NewJob(Q, keep_for=9 * HOUR), NewJob(Q, keep_for=HOUR), NewJob(Q, keep_for=2 * HOUR)
        )
        jobs = {job.id: job for job in await store.take(Q, 3, lease=DAY)}
        for id in (third, first, second):
            await end(store, state, jobs[id])
            await fixture.advance(60)
        for gone, left in ((third, 2), (first, 1), (second, 0)):
            assert await store.purge(Q, state, limit=1) == 1
            assert await state_of(store, gone) == "gone"
            assert len(await store.browse(Q, state)) == left

    async def test_a_revived_job_counts_from_its_second_death(self, store: Store, fixture: StoreFixture) -> None:
        id = await bury_one(store, NewJob(Q))
        await fixture.advance(60)
        assert await store.change([Revive(id)]) == 1
        await store.settle([Bury((await take_one(store)).lease, "again")])
        assert await store.purge(Q, "dead", before=await fixture.now() - 30_000) == 0
        assert await store.purge(Q, "dead", before=await fixture.now() + 1) == 1

    async def test_the_moment_itself_is_not_before_it(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        await bury_one(store, NewJob(Q))
        now = await fixture.now()
        assert await store.purge(Q, "dead", before=now) == 0
        assert await store.purge(Q, "dead", before=now + 1) == 1

    async def test_frees_what_belongs_to_the_jobs(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, *(NewJob(Q, key=str(n), waiter=b"w", delay=HOUR) for n in range(4)))
        assert await store.purge(Q, "delayed", before=await fixture.now() + 1, limit=3) == 3
        answers = await store.enqueue([NewJob(Q, key=str(n), on_duplicate="attach") for n in range(4)])
        assert [(answer.what, answer.waiters) for answer in answers] == [("created", 0)] * 3 + [("attached", 1)]


class TestGrowth(Suite):
    async def test_documents_that_expired_are_gone_after_a_day_without_being_read(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        for n in range(30):
            await store.write(f"old/{n}", b"x", ttl=5)
        await fixture.advance(2 * DAY)
        for _ in range(3):
            await store.write("new", b"x")
        assert await store.documents("old/") == []
        assert [document.name for document in await store.documents("")] == ["new"]

    async def test_a_life_of_everything_leaves_a_queue_as_empty_as_before(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        for n in range(20):
            key = f"key-{n}"
            await add(store, NewJob(Q, key=key, waiter=b"w", keep_for=5), NewJob(Q, delay=1), NewJob(Q))
            await store.enqueue([NewJob(Q, key=key, waiter=b"v", on_duplicate="attach")])
            first, second = await store.take(Q, 2, lease=10)
            await finish(store, first)
            await store.settle([Retry(second.lease, delay=1)])
            await fixture.advance(2)
            for job in await store.take(Q, 9, lease=10):
                await store.settle([Bury(job.lease, "x")])
            await fixture.advance(10)
            assert await store.purge(Q, "dead", before=await fixture.now(), limit=100) == 2
        stats = await stats_of(store)
        assert (stats.total, stats.done, stats.buried, stats.retried) == (0, 20, 40, 20)
        for state in STATES:
            assert await store.browse(Q, state) == []
        assert not await store.wait([Q], 0)
