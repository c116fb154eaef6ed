"""`StartNow`: a delayed job, whether it waits for its start time or for a retry, is ready at once."""

from __future__ import annotations

import asyncio

import pytest

from accoda.model import STATES, Done, Enqueued, NewJob, Retry, StartNow, State
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    begin_wait,
    close_to,
    finish,
    info_of,
    let_run,
    need_shared,
    one_in_each,
    state_of,
    stats_of,
    take_ids,
    take_one,
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture

MANY = 1200


class TestStartNow(Suite):
    async def test_makes_a_delayed_job_ready_from_now_on(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, b"x", rank=3, cost=2, key="k", keep_for=9, delay=HOUR))
        await fixture.advance(30)
        before = await info_of(store, id)
        assert await store.change([StartNow(id)]) == 1
        after = await info_of(store, id)
        assert (after.state, after.attempts, after.prev_start_time) == ("ready", 0, None)
        assert close_to(fixture, after.start_time, await fixture.now())
        assert (after.data, after.rank, after.cost, after.key, after.keep_for) == (b"x", 3, 2, "k", 9)
        assert after.created_at == before.created_at
        job = await take_one(store)
        assert (job.id, job.start_time, job.attempts) == (id, after.start_time, 0)
        await finish(store, job)

    async def test_ends_the_pause_of_a_retry_and_is_no_return(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await take_one(store, lease=5)
        await fixture.advance(5)
        job = await take_one(store, worker="w")
        await store.settle([Retry(job.lease, delay=HOUR, reason="busy")])
        before = await info_of(store, id)
        await fixture.advance(10)
        assert await store.change([StartNow(id)]) == 1
        after = await info_of(store, id)
        told = (after.attempts, after.prev_start_time, after.tries, after.crashes, after.reason)
        assert told == (2, before.prev_start_time, 1, 1, "busy")
        assert close_to(fixture, after.start_time, await fixture.now())
        stats = await stats_of(store)
        assert (stats.ready, stats.delayed, stats.retried, stats.expired) == (1, 0, 1, 1)
        assert (await take_one(store)).attempts == 2

    async def test_counts_only_delayed_jobs_and_each_once(self, store: Store) -> None:
        ids = await one_in_each(store)
        unknown = [0, 10**6, 1 << 60, (1 << 63) - 1]
        assert await store.change([StartNow(id) for id in [*ids.values(), ids["delayed"], *unknown]]) == 1
        assert await state_of(store, ids["delayed"]) == "ready"
        assert await store.change([]) == 0
        stats = await stats_of(store)
        assert (stats.ready, stats.delayed, stats.taken, stats.dead) == (2, 0, 1, 1)

    @pytest.mark.parametrize("state", [state for state in STATES if state != "delayed"])
    async def test_leaves_a_job_in_any_other_state_alone(
        self, store: Store, fixture: StoreFixture, state: State
    ) -> None:
        id = (await one_in_each(store))[state]
        before = await info_of(store, id)
        await fixture.advance(1)
        assert await store.change([StartNow(id), StartNow(id)]) == 0
        assert await info_of(store, id) == before

    async def test_a_job_whose_time_has_come_is_ready_by_itself(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, delay=10))
        start_time = (await info_of(store, id)).start_time
        await fixture.advance(30)
        assert await store.change([StartNow(id)]) == 0
        job = await take_one(store)
        assert (job.id, job.start_time) == (id, start_time)

    async def test_an_ended_lease_and_a_kept_result_are_no_delay(self, store: Store, fixture: StoreFixture) -> None:
        kept = await add_one(store, NewJob(Q, keep_for=10))
        await finish(store, await take_one(store))
        taken = await add_one(store, NewJob(Q))
        await take_one(store, lease=10)
        await fixture.advance(10)
        assert await store.change([StartNow(kept), StartNow(taken)]) == 0
        assert [await state_of(store, id) for id in (kept, taken)] == ["gone", "ready"]
        assert (await stats_of(store)).expired == 1

    async def test_keeps_the_key_and_the_waiters(self, store: Store) -> None:
        joins = [NewJob(Q, key="k", waiter=w, on_duplicate="attach", delay=HOUR) for w in (b"a", b"b")]
        (id, _) = await add(store, *joins)
        assert await store.change([StartNow(id)]) == 1
        assert await store.enqueue([NewJob(Q, key="k")]) == [Enqueued(id, "kept", 2)]
        job = await take_one(store)
        assert (job.id, job.key, job.waiters) == (id, "k", 2)
        assert await waiters_of(store, job.lease) == [b"a", b"b"]
        assert await store.settle([Done(job.lease, waiters=2)]) == []

    async def test_started_jobs_go_by_rank_then_id_among_the_others(self, store: Store) -> None:
        last, second, first, third = await add(
            store, NewJob(Q, rank=9, delay=HOUR), NewJob(Q, rank=5), NewJob(Q, rank=-1, delay=HOUR),
            NewJob(Q, rank=5, delay=HOUR),
        )  # fmt: skip
        assert await store.change([StartNow(last), StartNow(third), StartNow(first)]) == 3
        assert await take_ids(store) == [first, second, third, last]

    async def test_a_rank_given_while_it_waited_counts(self, store: Store) -> None:
        early, late = await add(store, NewJob(Q, rank=1), NewJob(Q, key="k", delay=HOUR))
        await store.enqueue([NewJob(Q, key="k", rank=2, delay=HOUR, on_duplicate="replace")])
        await store.change([StartNow(late)])
        assert await take_ids(store) == [early, late]

    async def test_starts_jobs_of_many_queues_in_one_call(self, store: Store) -> None:
        names = ["a", "b", f"{Q}.x"]
        ids = await add(store, *(NewJob(name, delay=HOUR) for name in names for _ in range(2)))
        assert await store.change([StartNow(id) for id in ids]) == 6
        for n, name in enumerate(names):
            stats = await stats_of(store, name)
            assert (stats.ready, stats.delayed) == (2, 0)
            assert await take_ids(store, name) == ids[2 * n : 2 * n + 2]

    async def test_starts_as_many_as_are_named(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, delay=HOUR) for _ in range(MANY)))
        assert await store.change([StartNow(id) for id in ids[::-1]]) == MANY
        stats = await stats_of(store)
        assert (stats.ready, stats.delayed) == (MANY, 0)
        assert await take_ids(store, count=MANY) == ids

    async def test_the_old_start_time_passes_without_a_trace(self, store: Store, fixture: StoreFixture) -> None:
        waiting, running = await add(store, NewJob(Q, rank=1, delay=30), NewJob(Q, delay=30))
        assert await store.change([StartNow(waiting), StartNow(running)]) == 2
        job = await take_one(store, lease=HOUR)
        assert job.id == running
        await fixture.advance(30)
        stats = await stats_of(store)
        assert (stats.ready, stats.delayed, stats.taken) == (1, 0, 1)
        assert await take_ids(store) == [waiting]
        await finish(store, job)

    async def test_a_started_job_can_be_delayed_and_started_again(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, delay=HOUR))
        for attempts in range(3):
            assert await store.change([StartNow(id)]) == 1
            job = await take_one(store)
            assert (job.id, job.attempts) == (id, attempts)
            await store.settle([Retry(job.lease, delay=HOUR)])
            assert await state_of(store, id) == "delayed"

    async def test_of_a_paused_queue_waits_for_the_end_of_the_pause(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, delay=HOUR * 2))
        await store.pause(Q, None)
        waiting = await begin_wait(store, Q)
        assert await store.change([StartNow(id)]) == 1
        assert await state_of(store, id) == "ready"
        await let_run(store)
        assert not waiting.done(), "a paused queue has nothing to take"
        assert await store.take(Q, 1) == []
        await store.pause(Q, 0)
        assert await waiting
        assert await take_ids(store) == [id]

    async def test_wakes_a_wait(self, store: Store) -> None:
        first, second = await add(store, NewJob(Q, delay=HOUR * 2), NewJob("other", delay=HOUR * 2))
        waiting, elsewhere = await begin_wait(store, Q), await begin_wait(store, "other")
        await store.change([StartNow(first)])
        assert await waiting
        await let_run(store)
        assert not elsewhere.done()
        await store.change([StartNow(second)])
        assert await elsewhere

    async def test_wakes_a_wait_of_another_handle(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        async with await fixture.open() as other:
            id = await add_one(other, NewJob(Q, delay=HOUR * 2))
            waiting = await begin_wait(store, Q)
            assert await other.change([StartNow(id)]) == 1
            assert await waiting
            assert await take_ids(store) == [id]


class TestStartNowRaces(Suite):
    limit = 30.0

    async def test_of_many_that_start_the_same_jobs_each_is_counted_for_one(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        ids = await add(store, *(NewJob(Q, delay=HOUR) for _ in range(100)))
        handles = [await fixture.open() for _ in range(3)] if fixture.shared else [store]
        calls = (handle.change([StartNow(id) for id in ids[::way]]) for handle in handles for way in (1, -1))
        assert sum(await asyncio.gather(*calls)) == 100
        stats = await stats_of(store)
        assert (stats.ready, stats.delayed) == (100, 0)
        for handle in handles:
            await handle.close()

    async def test_what_is_taken_at_the_same_moment_is_taken_once(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, delay=HOUR) for _ in range(60)))

        async def take_some() -> list[int]:
            return [id for _ in range(10) for id in await take_ids(store, count=3)]

        started, *taken = await asyncio.gather(
            _start_one_by_one(store, ids), take_some(), take_some(), _start_one_by_one(store, ids)
        )
        both = started, taken.pop()
        assert sum(len(each) for each in both) == 60
        seen = [id for each in taken for id in each] + await take_ids(store)
        assert sorted(seen) == ids


async def _start_one_by_one(store: Store, ids: list[int]) -> list[int]:
    return [id for id in ids if await store.change([StartNow(id)])]
