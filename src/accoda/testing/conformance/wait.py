"""`wait`: it sleeps until something may be takable, and not a moment longer."""

from __future__ import annotations

import asyncio

from accoda.errors import StorageClosed
from accoda.model import Done, NewJob, Retry, Revive
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add_one,
    begin_wait,
    bury_one,
    finish,
    let_run,
    need_exact,
    need_shared,
    take_ids,
    take_one,
)
from accoda.testing.store_fixture import StoreFixture


class TestWait(Suite):
    async def test_answers_at_once_where_a_job_is_ready(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        assert await store.wait([Q], HOUR)
        assert await store.wait(["empty", Q], HOUR)
        assert await store.wait([Q], 0)

    async def test_with_no_time_answers_at_once(self, store: Store) -> None:
        assert not await store.wait([Q], 0)
        assert not await store.wait([], 0)

    async def test_takes_nothing(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        await store.wait([Q], 1)
        assert await take_ids(store) == [id]

    async def test_gives_up_when_its_time_is_over(self, store: Store, fixture: StoreFixture) -> None:
        waiting = await begin_wait(store, Q, timeout=30)
        await fixture.advance(30)
        assert not await waiting

    async def test_gives_up_not_before_its_time(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        waiting = await begin_wait(store, Q, timeout=30)
        await fixture.advance(29.999)
        await let_run(store)
        assert not waiting.done()
        await fixture.advance(0.001)
        assert not await waiting

    async def test_for_no_queue_sleeps_until_its_time_is_over(self, store: Store, fixture: StoreFixture) -> None:
        waiting = await begin_wait(store, timeout=30)
        await store.enqueue([NewJob(Q)])
        await let_run(store)
        assert not waiting.done()
        await fixture.advance(30)
        assert not await waiting

    async def test_wakes_for_an_enqueue(self, store: Store) -> None:
        waiting = await begin_wait(store, "other", Q)
        await store.enqueue([NewJob(Q)])
        assert await waiting

    async def test_wakes_for_a_start_time(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q, delay=20))
        waiting = await begin_wait(store, Q)
        await fixture.advance(20)
        assert await waiting
        assert len(await take_ids(store)) == 1

    async def test_wakes_for_a_start_time_that_came_while_it_slept(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q, delay=500))
        waiting = await begin_wait(store, Q)
        await store.enqueue([NewJob(Q, delay=20)])
        await let_run(store)
        assert not waiting.done()
        await fixture.advance(20)
        assert await waiting

    async def test_wakes_for_the_end_of_a_lease(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        await take_one(store, lease=20)
        waiting = await begin_wait(store, Q)
        await fixture.advance(20)
        assert await waiting
        assert (await take_one(store)).attempts == 1

    async def test_wakes_for_a_lease_that_was_shortened(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        job = await take_one(store, lease=HOUR / 2)
        waiting = await begin_wait(store, Q)
        await store.extend([job.lease], 5)
        await let_run(store)
        await fixture.advance(5)
        assert await waiting

    async def test_sleeps_on_when_a_lease_was_extended(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        waiting = await begin_wait(store, Q, timeout=100)
        await store.extend([job.lease], 500)
        await fixture.advance(10)
        await let_run(store)
        assert not waiting.done()
        await fixture.advance(90)
        assert not await waiting

    async def test_wakes_for_a_retry(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        job = await take_one(store, lease=HOUR * 2)
        waiting = await begin_wait(store, Q)
        await store.settle([Retry(job.lease)])
        assert await waiting

    async def test_wakes_for_a_follow_up(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        job = await take_one(store)
        waiting = await begin_wait(store, "next")
        await store.settle([Done(job.lease, then=[NewJob("next")])])
        assert await waiting

    async def test_wakes_for_a_revival(self, store: Store) -> None:
        id = await bury_one(store, NewJob(Q))
        waiting = await begin_wait(store, Q)
        await store.change([Revive(id)])
        assert await waiting

    async def test_wakes_for_a_replacement_of_a_delayed_job(self, store: Store) -> None:
        await add_one(store, NewJob(Q, key="k", delay=HOUR * 2))
        waiting = await begin_wait(store, Q)
        await store.enqueue([NewJob(Q, key="k", on_duplicate="replace")])
        assert await waiting

    async def test_sleeps_on_for_other_queues_and_finished_jobs(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q, keep_for=5))
        job = await take_one(store)
        waiting = await begin_wait(store, Q, timeout=100)
        await finish(store, job)
        await store.enqueue([NewJob("other")])
        await fixture.advance(5)
        await let_run(store)
        assert not waiting.done()
        await fixture.advance(95)
        assert not await waiting

    async def test_wakes_all_who_sleep(self, store: Store) -> None:
        sleepers = [await begin_wait(store, Q) for _ in range(5)]
        await store.enqueue([NewJob(Q)])
        assert await asyncio.gather(*sleepers) == [True] * 5

    async def test_can_be_cancelled(self, store: Store) -> None:
        waiting = await begin_wait(store, Q)
        waiting.cancel()
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
        await store.enqueue([NewJob(Q)])
        assert await store.wait([Q], 0)

    async def test_ends_when_the_storage_is_closed(self, store: Store) -> None:
        waiting = await begin_wait(store, Q)
        await store.close()
        (answer,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(answer, StorageClosed)


class TestWaitOfAPausedQueue(Suite):
    async def test_sleeps_though_jobs_are_ready(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        await store.pause(Q, None)
        assert not await store.wait([Q], 0)
        waiting = await begin_wait(store, Q, timeout=50)
        await store.enqueue([NewJob(Q)])
        await let_run(store)
        assert not waiting.done()
        await fixture.advance(50)
        assert not await waiting

    async def test_wakes_for_a_resume(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        await store.pause(Q, None)
        waiting = await begin_wait(store, Q)
        await store.pause(Q, 0)
        assert await waiting

    async def test_wakes_for_the_end_of_the_pause(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        await store.pause(Q, await fixture.now() + 20_000)
        waiting = await begin_wait(store, Q)
        await fixture.advance(20)
        assert await waiting

    async def test_wakes_for_an_end_that_was_set_while_it_slept(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        await store.pause(Q, None)
        waiting = await begin_wait(store, Q)
        await store.pause(Q, await fixture.now() + 20_000)
        await let_run(store)
        await fixture.advance(20)
        assert await waiting


class TestWaitOfAnotherHandle(Suite):
    async def test_wakes_for_an_enqueue(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        async with await fixture.open() as other:
            waiting = await begin_wait(store, Q)
            await other.enqueue([NewJob(Q)])
            assert await waiting

    async def test_wakes_for_a_resume(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        async with await fixture.open() as other:
            await other.enqueue([NewJob(Q)])
            await other.pause(Q, None)
            waiting = await begin_wait(store, Q)
            await other.pause(Q, 0)
            assert await waiting

    async def test_wakes_for_the_end_of_a_lease(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        async with await fixture.open() as other:
            await other.enqueue([NewJob(Q)])
            await take_one(other, lease=20)
            waiting = await begin_wait(store, Q)
            await fixture.advance(20)
            assert await waiting

    async def test_wakes_for_a_retry_and_a_follow_up(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        async with await fixture.open() as other:
            await other.enqueue([NewJob(Q)])
            job = await take_one(other, lease=HOUR * 2)
            waiting = await begin_wait(store, Q)
            await other.settle([Retry(job.lease)])
            assert await waiting
            again = await take_one(other)
            waiting = await begin_wait(store, "next")
            await other.settle([Done(again.lease, then=[NewJob("next")])])
            assert await waiting
