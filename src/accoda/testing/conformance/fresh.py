"""`crashes` and `fresh_at`: what became of a job since it last began afresh."""

from __future__ import annotations

import pytest

from accoda.model import STATES, Bury, Done, Enqueued, Job, JobInfo, NewJob, OnDuplicate, Rank, Retry, State
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import HOUR, Q, Suite, add, add_one, bury_one, finish, info_of, take_ids, take_one
from accoda.testing.world import World

KEYED = NewJob(Q, b"old", key="k")


def past(job: Job | JobInfo) -> tuple[int, int, int]:
    return job.attempts, job.fresh_at, job.crashes


def again(way: OnDuplicate, delay: float | None = None) -> NewJob:
    return NewJob(Q, b"new", key="k", on_duplicate=way, waiter=None if way == "keep" else b"w", delay=delay)


async def crash(store: Store, world: World, times: int = 1) -> None:
    """Take the head and let its lease end, as when a worker dies."""
    for _ in range(times):
        await take_one(store, lease=5)
        await world.advance(5)


async def retry(store: Store, delay: float = 0.0) -> None:
    assert await store.settle([Retry((await take_one(store)).lease, delay=delay)]) == []


async def bury(store: Store) -> None:
    assert await store.settle([Bury((await take_one(store)).lease, "broken")]) == []


async def into(store: Store, state: str) -> None:
    """Bring the only job, which is ready, into that state."""
    match state:
        case "taken":
            await take_one(store, lease=HOUR)
        case "delayed":
            await retry(store, HOUR)
        case "dead":
            await bury(store)
        case "done":
            await finish(store, await take_one(store))


async def agree(store: Store, id: int) -> tuple[int, int, int]:
    """What `find` and `browse` tell of a job, which must be the same."""
    info = await info_of(store, id)
    assert info in await store.browse(Q, info.state)
    return past(info)


class TestCrashes(Suite):
    async def test_a_new_job_has_none(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q, key="k"), NewJob(Q, delay=HOUR))
        assert [await agree(store, id) for id in ids] == [(0, 0, 0)] * 3
        assert [past(job) for job in await store.take(Q, 3)] == [(0, 0, 0)] * 2

    async def test_each_lease_that_ends_is_one(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        for crashes in range(4):
            job = await take_one(store, lease=5)
            assert past(job) == (crashes, 0, crashes)
            assert await agree(store, id) == (crashes, 0, crashes)
            await world.advance(5)
            assert await agree(store, id) == (crashes + 1, 0, crashes + 1)

    async def test_a_batch_whose_leases_end_gives_one_to_each(self, store: Store, world: World) -> None:
        ids = await add(store, *(NewJob(Q) for _ in range(5)))
        first = await take_one(store, lease=5)
        await store.take(Q, 3, lease=5)
        await finish(store, first)
        await world.advance(5)
        assert [await agree(store, id) for id in ids[1:]] == [(1, 0, 1)] * 3 + [(0, 0, 0)]

    async def test_a_retry_is_none(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        await retry(store)
        assert await agree(store, id) == (1, 0, 0)
        await crash(store, world)
        await retry(store)
        assert await agree(store, id) == (3, 0, 1)
        await retry(store, delay=5)
        assert await agree(store, id) == (4, 0, 1)
        await world.advance(5)
        assert past(await take_one(store)) == (4, 0, 1)

    async def test_an_outcome_that_comes_too_late_leaves_the_crash(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=5)
        await world.advance(5)
        assert len(await store.settle([Retry(job.lease)])) == 1
        assert await agree(store, id) == (1, 0, 1)

    async def test_a_lease_counts_where_it_ends_not_where_it_was_to_end(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=5)
        await store.extend([job.lease], 30)
        await world.advance(5)
        assert await agree(store, id) == (0, 0, 0)
        await world.advance(30)
        assert await agree(store, id) == (1, 0, 1)

    @pytest.mark.parametrize("state", ["ready", "delayed", "taken"])
    async def test_who_joins_or_reranks_changes_neither(self, store: Store, world: World, state: str) -> None:
        id = await bury_one(store, KEYED)
        await store.revive([id])
        await crash(store, world, 2)
        await into(store, state)
        before = await agree(store, id)
        assert before == (4 if state == "delayed" else 3, 1, 2)
        answers = await store.enqueue([again("keep"), again("attach")])
        assert answers == [Enqueued(id, "kept", 0), Enqueued(id, "attached", 1)]
        await store.rerank([Rank(Q, id, 7.0)])
        await store.pause(Q)
        await store.resume(Q)
        assert await agree(store, id) == before

    @pytest.mark.parametrize("state", STATES)
    async def test_both_are_seen_in_every_state(self, store: Store, world: World, state: State) -> None:
        id = await bury_one(store, NewJob(Q, keep_for=HOUR))
        await store.revive([id])
        await crash(store, world, 2)
        await into(store, state)
        (info,) = await store.browse(Q, state)
        assert info.id == id
        assert await agree(store, id) == (4 if state == "delayed" else 3, 1, 2)

    async def test_are_told_with_the_jobs_of_a_batch(self, store: Store, world: World) -> None:
        revived = await bury_one(store, NewJob(Q))
        await store.revive([revived])
        crashed, retried = await add(store, NewJob(Q), NewJob(Q))
        jobs = await store.take(Q, 3, lease=5)
        await store.settle([Retry(job.lease) for job in jobs if job.id == retried])
        await world.advance(5)
        (plain,) = await add(store, NewJob(Q))
        told = {job.id: past(job) for job in await store.take(Q, 4)}
        assert told == {revived: (2, 1, 1), crashed: (1, 0, 1), retried: (1, 0, 0), plain: (0, 0, 0)}


class TestFreshStart(Suite):
    async def test_revive_is_one(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        await crash(store, world, 2)
        await retry(store)
        await bury(store)
        assert await agree(store, id) == (3, 0, 2)
        await store.revive([id])
        assert await agree(store, id) == (4, 4, 0)
        assert past(await take_one(store)) == (4, 4, 0)

    async def test_a_revived_job_counts_from_zero_again(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        await crash(store, world, 3)
        await bury(store)
        await store.revive([id])
        await retry(store)
        await crash(store, world)
        assert past(await take_one(store)) == (6, 4, 1)

    async def test_every_revive_is_one(self, store: Store, world: World) -> None:
        id = await bury_one(store, NewJob(Q))
        for attempts in (1, 3, 5):
            await store.revive([id])
            assert await agree(store, id) == (attempts, attempts, 0)
            await crash(store, world)
            await bury(store)
            assert await agree(store, id) == (attempts + 1, attempts, 1)

    async def test_a_revive_that_is_refused_is_none(self, store: Store, world: World) -> None:
        dead = await add_one(store, KEYED)
        await crash(store, world)
        await bury(store)
        holder = await add_one(store, KEYED)
        await crash(store, world)
        assert await store.revive([dead, holder]) == 0
        assert [await agree(store, id) for id in (dead, holder)] == [(1, 0, 1)] * 2

    @pytest.mark.parametrize("delay", [None, HOUR])
    @pytest.mark.parametrize("state", ["ready", "delayed", "taken"])
    async def test_replace_is_one(self, store: Store, world: World, state: str, delay: float | None) -> None:
        id = await add_one(store, KEYED)
        await crash(store, world, 2)
        await into(store, state)
        assert await agree(store, id) == (3 if state == "delayed" else 2, 0, 2)
        await store.enqueue([again("replace", delay)])
        attempts = 2 if state == "ready" else 3  # one more by the retry, or because it ran
        assert await agree(store, id) == (attempts, attempts, 0)

    @pytest.mark.parametrize("running", [False, True])
    async def test_a_replaced_job_counts_from_zero_again(self, store: Store, world: World, running: bool) -> None:
        id = await add_one(store, KEYED)
        await crash(store, world, 2)
        if running:
            await take_one(store, lease=HOUR)
        await store.enqueue([again("replace")])
        fresh = 3 if running else 2
        await crash(store, world)
        await retry(store)
        assert await agree(store, id) == (fresh + 2, fresh, 1)
        await world.advance(2 * HOUR)
        assert past(await take_one(store)) == (fresh + 2, fresh, 1), "the lease that was replaced does not end again"

    async def test_replace_after_a_lease_that_nobody_saw_end_is_one(self, store: Store, world: World) -> None:
        id = await add_one(store, KEYED)
        await crash(store, world)
        await take_one(store, lease=5)
        await world.advance(5)
        await store.enqueue([again("replace")])
        assert await agree(store, id) == (2, 2, 0)

    async def test_replace_by_a_follow_up_is_one(self, store: Store, world: World) -> None:
        id = await add_one(store, KEYED)
        await crash(store, world)
        running = await take_one(store, lease=HOUR)
        await add_one(store, NewJob("other"))
        other = await take_one(store, "other")
        assert await store.settle([Done(other.lease, then=[again("replace")])]) == []
        assert await take_ids(store) == [id]
        assert await agree(store, id) == (running.attempts + 1, running.attempts + 1, 0)

    async def test_replace_in_the_same_call_leaves_a_new_job(self, store: Store) -> None:
        first, second = await add(store, KEYED, again("replace"))
        assert first == second
        assert past(await take_one(store)) == (0, 0, 0)

    async def test_the_next_job_under_the_key_inherits_nothing(self, store: Store, world: World) -> None:
        old = await add_one(store, KEYED)
        await crash(store, world, 2)
        job = await take_one(store)
        await store.settle([Done(job.lease, then=[again("replace")])])
        new = await take_one(store)
        assert new.id != old
        assert past(new) == (0, 0, 0)
