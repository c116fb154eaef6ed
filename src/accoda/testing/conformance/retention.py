"""`purge` by age and by number, and that nothing is left behind by what has come and gone."""

from __future__ import annotations

import pytest

from accoda.model import STATES, Bury, Done, Job, NewJob, Retry, State
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    bury_one,
    finish,
    need_exact,
    state_of,
    stats_of,
    take_one,
)
from accoda.testing.world import World

DAY = 24 * HOUR


async def end(store: Store, state: State, job: Job) -> None:
    """Bring a taken job to its end."""
    assert await store.settle([Bury(job.lease, "x") if state == "dead" else Done(job.lease)]) == []


async def make(store: Store, state: State, count: int) -> list[int]:
    """Jobs in a state, in a queue where nothing else is ready."""
    new = NewJob(Q, keep_for=HOUR, delay=DAY if state == "delayed" else None)
    ids = await add(store, *[new] * count)
    if state in ("taken", "dead", "done"):
        jobs = await store.take(Q, count, lease=DAY)
        assert [job.id for job in jobs] == ids
        for job in jobs if state != "taken" else ():
            await end(store, state, job)
    return ids


class TestRetention(Suite):
    @pytest.mark.parametrize("state", STATES)
    async def test_takes_only_what_is_old_enough(self, store: Store, world: World, state: State) -> None:
        ids = []
        for _ in range(3):
            ids += await make(store, state, 1)
            await world.advance(60)
        before = await world.now() - 90_000
        assert await store.purge(Q, state, before=before - 120_000) == 0
        assert await store.purge("other", state, before=before) == 0
        assert await store.purge(Q, state, before=before) == 2
        assert [await state_of(store, id) for id in ids] == ["gone", "gone", state]
        assert await store.purge(Q, state, before=before) == 0
        assert await store.purge(Q, state, before=await world.now() + 1) == 1

    @pytest.mark.parametrize("state", STATES)
    async def test_takes_no_more_than_the_limit(self, store: Store, state: State) -> None:
        ids = await make(store, state, 5)
        assert await store.purge(Q, state, limit=0) == 0
        assert await store.purge(Q, state, limit=2) == 2
        assert [await state_of(store, id) for id in ids] == ["gone", "gone", state, state, state]
        assert await store.purge(Q, state, limit=9) == 3
        assert await store.purge(Q, state, limit=9) == 0
        assert (await stats_of(store)).total == 0

    @pytest.mark.parametrize("state", ["dead", "done"])
    async def test_takes_those_first_that_ended_first(self, store: Store, world: World, state: State) -> None:
        first, second, third = await add(
            store, NewJob(Q, keep_for=9 * HOUR), NewJob(Q, keep_for=HOUR), NewJob(Q, keep_for=2 * HOUR)
        )
        jobs = {job.id: job for job in await store.take(Q, 3, lease=DAY)}
        for id in (third, first, second):
            await end(store, state, jobs[id])
            await world.advance(60)
        for gone, left in ((third, 2), (first, 1), (second, 0)):
            assert await store.purge(Q, state, limit=1) == 1
            assert await state_of(store, gone) == "gone"
            assert len(await store.browse(Q, state)) == left

    async def test_a_revived_job_counts_from_its_second_death(self, store: Store, world: World) -> None:
        id = await bury_one(store, NewJob(Q))
        await world.advance(60)
        assert await store.revive([id]) == 1
        await store.settle([Bury((await take_one(store)).lease, "again")])
        assert await store.purge(Q, "dead", before=await world.now() - 30_000) == 0
        assert await store.purge(Q, "dead", before=await world.now() + 1) == 1

    async def test_the_moment_itself_is_not_before_it(self, store: Store, world: World) -> None:
        need_exact(world)
        await bury_one(store, NewJob(Q))
        now = await world.now()
        assert await store.purge(Q, "dead", before=now) == 0
        assert await store.purge(Q, "dead", before=now + 1) == 1

    async def test_frees_what_belongs_to_the_jobs(self, store: Store, world: World) -> None:
        await add(store, *(NewJob(Q, key=str(n), waiter=b"w", delay=HOUR) for n in range(4)))
        assert await store.purge(Q, "delayed", before=await world.now() + 1, limit=3) == 3
        answers = await store.enqueue([NewJob(Q, key=str(n), on_duplicate="attach") for n in range(4)])
        assert [(answer.what, answer.waiters) for answer in answers] == [("created", 0)] * 3 + [("attached", 1)]


class TestGrowth(Suite):
    async def test_documents_that_expired_are_gone_after_a_day_though_nobody_reads_them(
        self, store: Store, world: World
    ) -> None:
        for n in range(30):
            await store.write(f"old/{n}", b"x", ttl=5)
        await world.advance(2 * DAY)
        for _ in range(3):
            await store.write("new", b"x")
        assert await store.documents("old/") == []
        assert [document.name for document in await store.documents("")] == ["new"]

    async def test_a_life_of_everything_leaves_a_queue_as_empty_as_before(self, store: Store, world: World) -> None:
        for n in range(20):
            key = f"key-{n}"
            await add(store, NewJob(Q, key=key, waiter=b"w", keep_for=5), NewJob(Q, delay=1), NewJob(Q))
            await store.enqueue([NewJob(Q, key=key, waiter=b"v", on_duplicate="attach")])
            first, second = await store.take(Q, 2, lease=10)
            await finish(store, first)
            await store.settle([Retry(second.lease, delay=1)])
            await world.advance(2)
            for job in await store.take(Q, 9, lease=10):
                await store.settle([Bury(job.lease, "x")])
            await world.advance(10)
            assert await store.purge(Q, "dead", before=await world.now(), limit=100) == 2
        stats = await stats_of(store)
        assert (stats.total, stats.done, stats.buried, stats.retried) == (0, 20, 40, 20)
        for state in STATES:
            assert await store.browse(Q, state) == []
        assert not await store.wait([Q], 0)
