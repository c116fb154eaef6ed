"""More is due at one moment than one call may apply: nothing is lost, early or twice, and no call pays for all."""

from __future__ import annotations

from accoda.model import Bury, ByKey, Cancel, Done, Job, NewJob, QueueStats, Remove, Retry, StartNow, State
from accoda.storage.protocol import DUE_AT_ONCE, Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    begin_wait,
    close_to,
    info_of,
    let_run,
    lost,
    stats_of,
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture

SIZE = 2 * DUE_AT_ONCE + 500
ENOUGH_CALLS = 10  # that apply something due: more than a storm of that size takes


async def drain(store: Store, count: int, queue: str = Q) -> list[Job]:
    """Take and finish that many jobs in batches; as long as one is left, a take that comes after a wait gives some."""
    jobs: list[Job] = []
    while len(jobs) < count:
        assert await store.wait([queue], 0), f"sleeps with {count - len(jobs)} jobs left"
        batch = await store.take(queue, 400, lease=HOUR)
        assert batch, f"gives nothing with {count - len(jobs)} jobs left"
        assert await store.settle([Done(job.lease) for job in batch]) == []
        jobs += batch
    assert len({job.id for job in jobs}) == count, "a job came out twice"
    assert await store.take(queue, 400) == []
    return jobs


async def apply_all(store: Store, queue: str = Q) -> QueueStats:
    """The statistics once a storm is over."""
    for _ in range(ENOUGH_CALLS):
        stats = await stats_of(store, queue)
    return stats


async def begin(store: Store, *, lease: float) -> list[Job]:
    """A storm to be: jobs whose leases end at one moment. The lower the id, the higher the rank."""
    await add(store, *(NewJob(Q, str(n).encode(), rank=-n) for n in range(SIZE)))
    jobs = await store.take(Q, SIZE, lease=lease)
    assert len(jobs) == SIZE
    return jobs


class TestStorm(Suite):
    limit = 60.0

    async def test_of_leases_gives_every_job_back_once(self, store: Store, fixture: StoreFixture) -> None:
        before = {job.id: job for job in await begin(store, lease=30)}
        await fixture.advance(30)
        jobs = await drain(store, SIZE)
        assert {job.id for job in jobs} == set(before)
        assert {(job.attempts, job.crashes) for job in jobs} == {(1, 1)}
        assert all(job.data == before[job.id].data for job in jobs)
        assert all(job.prev_start_time == before[job.id].start_time for job in jobs)
        assert all(close_to(fixture, job.start_time, before[job.id].start_time + 30_000) for job in jobs)
        stats = await stats_of(store)
        assert (stats.total, stats.done, stats.expired) == (0, SIZE, SIZE)
        assert not await store.wait([Q], 0)

    async def test_no_ended_lease_is_good_though_its_return_is_not_applied(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        old = [job.lease for job in await begin(store, lease=30)]
        await fixture.advance(30)
        late = old[: DUE_AT_ONCE + 200]
        assert await store.settle([Done(lease, then=[NewJob("next")]) for lease in late]) == lost(*late)
        again = await store.take(Q, 100, lease=HOUR)
        assert len(again) == 100
        last = old[-50:]
        assert await store.extend(last, 60) == lost(*last)
        assert await store.settle([Retry(lease) for lease in last]) == lost(*last)
        assert await store.settle([Bury(lease, "late") for lease in last]) == lost(*last)
        assert await waiters_of(store, last[0]) == []
        assert await store.settle([Done(job.lease) for job in again]) == []
        jobs = await drain(store, SIZE - len(again))
        assert {job.attempts for job in jobs} == {1}
        stats = await stats_of(store)
        assert (stats.total, stats.done, stats.expired, stats.retried, stats.buried) == (0, SIZE, SIZE, 0, 0)
        assert (await stats_of(store, "next")).total == 0

    async def test_one_call_applies_a_bounded_part_over_all_its_queues(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        other = f"{Q}.other"
        for queue in (Q, other):
            await add(store, *(NewJob(queue) for _ in range(SIZE // 2)))
            assert len(await store.take(queue, SIZE, lease=30)) == SIZE // 2
        await fixture.advance(30)
        for calls in range(1, ENOUGH_CALLS):
            queues = (await store.stats()).queues
            stats = [queues[Q], queues[other]]
            expired = sum(each.expired for each in stats)
            assert expired <= calls * DUE_AT_ONCE
            assert [each.ready + each.taken for each in stats] == [SIZE // 2] * 2
            assert [each.ready for each in stats] == [each.expired for each in stats]
        assert expired == SIZE

    async def test_the_oldest_moments_come_first(self, store: Store, fixture: StoreFixture) -> None:
        late = await add(store, *(NewJob(Q, delay=20) for _ in range(DUE_AT_ONCE)))
        early = await add(store, *(NewJob(Q, delay=10, rank=5) for _ in range(DUE_AT_ONCE)))
        await fixture.advance(30)
        first, *_ = await store.take(Q, 1, lease=HOUR)
        assert first.id == early[0]
        rest = await drain(store, len(late) + len(early) - 1)
        assert {job.id for job in rest} == {*late, *early} - {first.id}

    async def test_of_start_times_starts_every_job_once_and_none_early(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        ids = await add(store, *(NewJob(Q, rank=-n, delay=10) for n in range(SIZE)))
        await fixture.advance(9)
        assert await store.take(Q, SIZE) == []
        assert (await stats_of(store)).delayed == SIZE
        await fixture.advance(1)
        stats = await stats_of(store)
        assert stats.ready + stats.delayed == stats.total == SIZE
        jobs = await drain(store, SIZE)
        assert sorted(job.id for job in jobs) == ids
        assert {(job.attempts, job.crashes, job.start_time) for job in jobs} == {(0, 0, jobs[0].start_time)}
        assert (await stats_of(store)).promoted == SIZE

    async def test_of_retries_brings_every_job_back_once(self, store: Store, fixture: StoreFixture) -> None:
        taken = await begin(store, lease=HOUR)
        assert await store.settle([Retry(job.lease, delay=10) for job in taken]) == []
        assert await store.take(Q, SIZE) == []
        await fixture.advance(10)
        jobs = await drain(store, SIZE)
        assert sorted(job.id for job in jobs) == sorted(job.id for job in taken)
        assert {(job.attempts, job.crashes) for job in jobs} == {(1, 0)}
        stats = await stats_of(store)
        assert (stats.total, stats.done, stats.retried, stats.expired, stats.promoted) == (0, SIZE, SIZE, 0, SIZE)

    async def test_of_kept_results_leaves_none(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, *(NewJob(Q, keep_for=30) for _ in range(SIZE)))
        assert await store.settle([Done(job.lease) for job in await store.take(Q, SIZE)]) == []
        await self.leaves_none(store, fixture, "done")

    async def test_of_cancelled_jobs_leaves_none(self, store: Store, fixture: StoreFixture) -> None:
        ids = await add(store, *(NewJob(Q, keep_for=30) for _ in range(SIZE)))
        assert await store.change([Cancel(id) for id in ids]) == SIZE
        await self.leaves_none(store, fixture, "cancelled")

    async def leaves_none(self, store: Store, fixture: StoreFixture, state: State) -> None:
        """What is kept for 30 s goes then."""
        assert len(await store.browse(Q, state, limit=SIZE)) == SIZE
        await fixture.advance(30)
        await add(store, NewJob(Q))
        assert len(await store.take(Q, 9)) == 1, "a take does not wait until they are gone"
        assert (await apply_all(store)).total == 1
        assert await store.browse(Q, state) == []

    async def test_a_key_of_a_job_that_is_not_back_yet_is_held_by_it(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, *(NewJob(Q, key=str(n), waiter=b"w") for n in range(SIZE)))
        jobs = {int(job.key or ""): job for job in await store.take(Q, SIZE, lease=30)}
        await fixture.advance(30)
        kept, replaced, attached = await store.enqueue(
            [
                NewJob(Q, key=str(SIZE - 1)),
                NewJob(Q, b"new", key=str(SIZE - 2), on_duplicate="replace"),
                NewJob(Q, key=str(SIZE - 3), on_duplicate="attach", waiter=b"x"),
            ]
        )
        assert (kept.id, kept.what) == (jobs[SIZE - 1].id, "kept")
        assert (replaced.id, replaced.what) == (jobs[SIZE - 2].id, "replaced")
        assert (attached.id, attached.what, attached.waiters) == (jobs[SIZE - 3].id, "attached", 2)
        old = [jobs[n].lease for n in (SIZE - 1, SIZE - 2, SIZE - 3)]
        assert await store.settle([Done(lease) for lease in old]) == lost(*old)
        back = {job.id: job for job in await drain(store, SIZE)}
        assert back[replaced.id].data == b"new"
        assert {job.attempts for job in back.values()} == {1}
        assert (await stats_of(store)).total == 0

    async def test_a_look_at_a_key_and_a_removal_see_that_job_as_it_is(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        await begin(store, lease=29)
        (id,) = await add(store, NewJob(Q, key="k"))
        await store.take(Q, 1, lease=30)
        await fixture.advance(30)
        seen = (await store.look(ByKey(Q, "k"))).job
        assert seen is not None, "its lease ended last of all"
        assert (seen.id, seen.state, seen.crashes) == (id, "ready", 1)
        assert await store.change([Remove(id, waiters=0)]) == 1
        stats = await apply_all(store)
        assert (stats.ready, stats.taken, stats.expired) == (SIZE, 0, SIZE + 1)

    async def test_a_start_now_counts_only_what_is_still_to_come(self, store: Store, fixture: StoreFixture) -> None:
        ids = await add(store, *(NewJob(Q, delay=10) for _ in range(SIZE)))
        due, early = await add(store, NewJob(Q, delay=11), NewJob(Q, rank=-1, delay=HOUR))
        await fixture.advance(30)
        assert await store.change([StartNow(id) for id in [due, early, ids[-1]]]) == 1, (
            "the others were due, applied or not"
        )
        first = (await info_of(store, ids[0])).start_time
        assert close_to(fixture, (await info_of(store, due)).start_time, first + 1000)
        stats = await apply_all(store)
        assert (stats.ready, stats.delayed) == (SIZE + 2, 0)
        assert (await store.take(Q, 1))[0].id == early

    async def test_what_people_remove_of_it_is_gone(self, store: Store, fixture: StoreFixture) -> None:
        jobs = await begin(store, lease=30)
        await fixture.advance(30)
        some = [job.id for job in jobs[::5]]
        assert await store.change([Remove(id) for id in some]) == len(some)
        assert await store.purge(Q, "ready", limit=7) == 7
        stats = await stats_of(store)
        assert stats.ready + stats.taken == stats.total == SIZE - len(some) - 7
        left = await drain(store, stats.total)
        assert not {job.id for job in left} & set(some)


class TestStormOfAPausedQueue(Suite):
    limit = 60.0

    async def test_wakes_no_wait_until_it_is_resumed(self, store: Store, fixture: StoreFixture) -> None:
        await begin(store, lease=30)
        await store.pause(Q, None)
        await fixture.advance(30)
        waiting = await begin_wait(store, Q)
        assert await store.take(Q, 10) == []
        await let_run(store)
        assert not waiting.done(), "a paused queue has nothing to take"
        await store.pause(Q, 0)
        assert await waiting
        assert {job.attempts for job in await drain(store, SIZE)} == {1}
