"""`tries` and `crashes`: what failed since the job was enqueued, revived or replaced."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from accoda.model import (
    ENDED,
    STATES,
    Bury,
    Cancel,
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lanes,
    NewJob,
    NotCrashed,
    OnDuplicate,
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
    bury_one,
    finish,
    info_of,
    lost,
    take_ids,
    take_one,
)
from accoda.testing.store_fixture import StoreFixture

KEYED = NewJob(Q, b"old", key="k")


def counts(job: Job | JobInfo) -> tuple[int, int, int]:
    """Attempts, tries and crashes."""
    return job.attempts, job.tries, job.crashes


def again(way: OnDuplicate, delay: float | None = None) -> NewJob:
    return NewJob(Q, b"new", key="k", on_duplicate=way, waiter=None if way == "keep" else b"w", delay=delay)


async def crash(store: Store, fixture: StoreFixture, times: int = 1) -> None:
    """Take the head and let its lease end, as when a worker dies."""
    for _ in range(times):
        await take_one(store, lease=5)
        await fixture.advance(5)


async def retry(store: Store, delay: float = 0.0, *, count: bool = True) -> None:
    assert await store.settle([Retry((await take_one(store)).lease, delay=delay, counts=count)]) == []


async def bury(store: Store) -> None:
    assert await store.settle([Bury((await take_one(store)).lease, "broken")]) == []


async def into(store: Store, state: str) -> None:
    """Bring the only job, which is ready, into that state."""
    match state:
        case "taken":
            await take_one(store, lease=HOUR)
        case "delayed":
            await retry(store, HOUR)
        case "held":
            await store.set_lanes(Q, Lanes(limit=0))
        case "dead":
            await bury(store)
        case "done":
            await finish(store, await take_one(store))
        case "cancelled":
            assert await store.change([Cancel((await take_one(store)).id)]) == 1


async def agree(store: Store, id: int) -> tuple[int, int, int]:
    """What `look` and `browse` tell of a job, which must be the same."""
    info = await info_of(store, id)
    assert info in await store.browse(Q, info.state)
    return counts(info)


class TestTries(Suite):
    async def test_a_new_job_has_none(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q, key="k"), NewJob(Q, delay=HOUR))
        assert [await agree(store, id) for id in ids] == [(0, 0, 0)] * 3
        assert [counts(job) for job in await store.take(Q, 3)] == [(0, 0, 0)] * 2

    async def test_each_retry_is_one(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        for tries in range(4):
            job = await take_one(store)
            assert counts(job) == (tries, tries, 0)
            await store.settle([Retry(job.lease, delay=5 * (tries % 2))])
            assert await agree(store, id) == (tries + 1, tries + 1, 0)
            await fixture.advance(5)

    async def test_a_retry_that_does_not_count_is_none(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await retry(store)
        await retry(store, count=False)
        assert await agree(store, id) == (2, 1, 0)
        await retry(store, 5, count=False)
        assert await agree(store, id) == (3, 1, 0)
        await fixture.advance(5)
        await retry(store)
        assert counts(await take_one(store)) == (4, 2, 0)

    async def test_of_a_batch_count_for_each_job(self, store: Store) -> None:
        await add(store, *(NewJob(Q) for _ in range(3)))
        one, two, three = await store.take(Q, 3)
        await store.settle([Retry(one.lease), Retry(two.lease, counts=False), Retry(three.lease, counts=True)])
        assert [counts(job) for job in await store.take(Q, 3)] == [(1, 1, 0), (1, 0, 0), (1, 1, 0)]

    async def test_a_retry_of_a_lost_lease_is_none(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        old = await take_one(store)
        await store.settle([Retry(old.lease)])
        assert await store.settle([Retry(old.lease), Retry(old.lease, counts=False)]) == lost(old.lease, old.lease)
        assert await agree(store, id) == (1, 1, 0)

    async def test_a_burial_is_none(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        await retry(store)
        await bury(store)
        assert await agree(store, id) == (1, 1, 0)

    async def test_a_start_before_its_time_keeps_them(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        await retry(store, HOUR)
        await store.change([StartNow(id)])
        assert await agree(store, id) == (1, 1, 0)


class TestCrashes(Suite):
    async def test_each_lease_that_ends_is_one(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        for crashes in range(4):
            job = await take_one(store, lease=5)
            assert counts(job) == (crashes, 0, crashes)
            assert await agree(store, id) == (crashes, 0, crashes)
            await fixture.advance(5)
            assert await agree(store, id) == (crashes + 1, 0, crashes + 1)

    async def test_a_batch_whose_leases_end_gives_one_to_each(self, store: Store, fixture: StoreFixture) -> None:
        ids = await add(store, *(NewJob(Q) for _ in range(5)))
        first = await take_one(store, lease=5)
        await store.take(Q, 3, lease=5)
        await finish(store, first)
        await fixture.advance(5)
        assert [await agree(store, id) for id in ids[1:]] == [(1, 0, 1)] * 3 + [(0, 0, 0)]

    async def test_a_retry_is_none(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await retry(store)
        assert await agree(store, id) == (1, 1, 0)
        await crash(store, fixture)
        await retry(store)
        assert await agree(store, id) == (3, 2, 1)
        await retry(store, delay=5, count=False)
        assert await agree(store, id) == (4, 2, 1)
        await fixture.advance(5)
        assert counts(await take_one(store)) == (4, 2, 1)

    @pytest.mark.parametrize("state", ["ready", "delayed", "taken"])
    async def test_is_taken_back_by_a_worker_that_lives(self, store: Store, fixture: StoreFixture, state: str) -> None:
        id = await add_one(store, NewJob(Q, b"data", rank=2.5, key="k", keep_for=HOUR))
        await crash(store, fixture, 2)
        await into(store, state)
        before = await info_of(store, id)
        assert await store.change([NotCrashed(id)]) == 1
        assert await info_of(store, id) == replace(before, crashes=1)
        assert await store.change([NotCrashed(id), NotCrashed(id)]) == 1, "there are none below zero"
        assert await info_of(store, id) == replace(before, crashes=0)
        if state == "taken":
            await fixture.advance(HOUR)
            assert (await info_of(store, id)).crashes == 1, "it has another one"

    async def test_of_the_job_that_runs_can_be_taken_back_and_its_lease_stays(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id, other = await add(store, NewJob(Q, b"1"), NewJob(Q, b"2"))
        await store.take(Q, 2, lease=5)
        await fixture.advance(5)
        jobs = await store.take(Q, 2, lease=HOUR)
        assert await store.change([NotCrashed(id)]) == 1
        assert [counts(await info_of(store, each)) for each in (id, other)] == [(1, 0, 0), (1, 0, 1)]
        assert await store.extend([job.lease for job in jobs], HOUR) == []
        assert await store.settle([Retry(job.lease, reason="x") for job in jobs]) == []
        assert [counts(job) for job in await store.take(Q, 2)] == [(2, 1, 0), (2, 1, 1)]

    async def test_is_not_taken_back_when_there_is_none(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        before = await info_of(store, id)
        assert await store.change([NotCrashed(id)]) == 0
        assert await info_of(store, id) == before

    @pytest.mark.parametrize("state", ENDED)
    async def test_is_not_taken_back_when_the_job_has_ended(
        self, store: Store, fixture: StoreFixture, state: str
    ) -> None:
        id = await add_one(store, NewJob(Q, keep_for=HOUR))
        await crash(store, fixture)
        await into(store, state)
        before = await info_of(store, id)
        assert await store.change([NotCrashed(id)]) == 0
        assert await info_of(store, id) == before

    async def test_an_outcome_that_comes_too_late_leaves_the_crash(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=5)
        await fixture.advance(5)
        assert len(await store.settle([Retry(job.lease)])) == 1
        assert await agree(store, id) == (1, 0, 1)

    async def test_an_extended_lease_counts_when_it_ends(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=5)
        await store.extend([job.lease], 30)
        await fixture.advance(5)
        assert await agree(store, id) == (0, 0, 0)
        await fixture.advance(30)
        assert await agree(store, id) == (1, 0, 1)

    @pytest.mark.parametrize("state", ["ready", "delayed", "taken"])
    async def test_an_attached_waiter_or_a_new_rank_changes_neither(
        self, store: Store, fixture: StoreFixture, state: str
    ) -> None:
        id = await add_one(store, KEYED)
        await retry(store)
        await crash(store, fixture, 2)
        await into(store, state)
        before = await agree(store, id)
        assert before == ((4, 2, 2) if state == "delayed" else (3, 1, 2))
        answers = await store.enqueue([again("keep"), again("attach")])
        assert answers == [Enqueued(id, "kept", 0), Enqueued(id, "attached", 1)]
        await store.change([Rerank(id, 7.0)])
        await store.pause(Q, None)
        await store.pause(Q, 0)
        assert await agree(store, id) == before

    @pytest.mark.parametrize("state", STATES)
    async def test_both_are_seen_in_every_state(self, store: Store, fixture: StoreFixture, state: State) -> None:
        id = await add_one(store, NewJob(Q, keep_for=HOUR, lane="c"))
        await retry(store)
        await crash(store, fixture, 2)
        await into(store, state)
        (info,) = await store.browse(Q, state)
        assert info.id == id
        assert await agree(store, id) == ((4, 2, 2) if state == "delayed" else (3, 1, 2))

    async def test_are_told_with_the_jobs_of_a_batch(self, store: Store, fixture: StoreFixture) -> None:
        revived = await bury_one(store, NewJob(Q))
        await store.change([Revive(revived)])
        crashed, retried = await add(store, NewJob(Q), NewJob(Q))
        jobs = await store.take(Q, 3, lease=5)
        await store.settle([Retry(job.lease) for job in jobs if job.id == retried])
        await fixture.advance(5)
        (plain,) = await add(store, NewJob(Q))
        told = {job.id: counts(job) for job in await store.take(Q, 4)}
        assert told == {revived: (2, 0, 1), crashed: (1, 0, 1), retried: (1, 1, 0), plain: (0, 0, 0)}


class TestBeginningAgain(Suite):
    async def test_revive_sets_both_to_zero(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await crash(store, fixture, 2)
        await retry(store)
        await bury(store)
        assert await agree(store, id) == (3, 1, 2)
        await store.change([Revive(id)])
        assert await agree(store, id) == (4, 0, 0)
        assert counts(await take_one(store)) == (4, 0, 0)

    async def test_a_revived_job_counts_from_zero_again(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await crash(store, fixture, 3)
        await bury(store)
        await store.change([Revive(id)])
        await retry(store)
        await crash(store, fixture)
        assert counts(await take_one(store)) == (6, 1, 1)

    async def test_so_does_every_revive(self, store: Store, fixture: StoreFixture) -> None:
        id = await bury_one(store, NewJob(Q))
        for attempts in (1, 4, 7):
            await store.change([Revive(id)])
            assert await agree(store, id) == (attempts, 0, 0)
            await crash(store, fixture)
            await retry(store)
            await bury(store)
            assert await agree(store, id) == (attempts + 2, 1, 1)

    async def test_a_revive_that_is_not_applied_sets_nothing(self, store: Store, fixture: StoreFixture) -> None:
        dead = await add_one(store, KEYED)
        await crash(store, fixture)
        await retry(store)
        await bury(store)
        holder = await add_one(store, KEYED)
        await crash(store, fixture)
        await retry(store)
        assert await store.change([Revive(dead), Revive(holder)]) == 0
        assert [await agree(store, id) for id in (dead, holder)] == [(2, 1, 1)] * 2

    @pytest.mark.parametrize("delay", [None, HOUR])
    @pytest.mark.parametrize("state", ["ready", "delayed", "taken"])
    async def test_replace_sets_both_to_zero(
        self, store: Store, fixture: StoreFixture, state: str, delay: float | None
    ) -> None:
        id = await add_one(store, KEYED)
        await crash(store, fixture)
        await retry(store)
        await into(store, state)
        assert await agree(store, id) == ((3, 2, 1) if state == "delayed" else (2, 1, 1))
        await store.enqueue([again("replace", delay)])
        attempts = 2 if state == "ready" else 3  # one more by the retry, or because it ran
        assert await agree(store, id) == (attempts, 0, 0)

    @pytest.mark.parametrize("running", [False, True])
    async def test_a_replaced_job_counts_from_zero_again(
        self, store: Store, fixture: StoreFixture, running: bool
    ) -> None:
        id = await add_one(store, KEYED)
        await crash(store, fixture, 2)
        if running:
            await take_one(store, lease=HOUR)
        await store.enqueue([again("replace")])
        attempts = 5 if running else 4
        await crash(store, fixture)
        await retry(store)
        assert await agree(store, id) == (attempts, 1, 1)
        await fixture.advance(2 * HOUR)
        assert counts(await take_one(store)) == (attempts, 1, 1), "the lease that was replaced does not end again"

    async def test_replace_after_a_lease_end_that_was_not_applied(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, KEYED)
        await crash(store, fixture)
        await take_one(store, lease=5)
        await fixture.advance(5)
        await store.enqueue([again("replace")])
        assert await agree(store, id) == (2, 0, 0)

    async def test_replace_by_a_follow_up(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, KEYED)
        await crash(store, fixture)
        await retry(store)
        running = await take_one(store, lease=HOUR)
        await add_one(store, NewJob("other"))
        other = await take_one(store, "other")
        assert await store.settle([Done(other.lease, then=[again("replace")])]) == []
        assert await take_ids(store) == [id]
        assert await agree(store, id) == (running.attempts + 1, 0, 0)

    async def test_replace_in_the_same_call_leaves_a_new_job(self, store: Store) -> None:
        first, second = await add(store, KEYED, again("replace"))
        assert first == second
        assert counts(await take_one(store)) == (0, 0, 0)

    async def test_the_next_job_under_the_key_inherits_nothing(self, store: Store, fixture: StoreFixture) -> None:
        old = await add_one(store, KEYED)
        await crash(store, fixture)
        await retry(store)
        job = await take_one(store)
        await store.settle([Done(job.lease, then=[again("replace")])])
        new = await take_one(store)
        assert new.id != old
        assert counts(new) == (0, 0, 0)
