"""Peek and drop: a look at a job that nobody takes, and its removal unless more wait for it than were seen."""

from __future__ import annotations

import asyncio

import pytest

from accoda.model import Done, Enqueued, NewJob, Peek, Rank, Retry
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    bury_one,
    close_to,
    finish,
    info_of,
    lost,
    need_shared,
    state_of,
    stats_of,
    take_ids,
    take_one,
)
from accoda.testing.conformance.keys import HOLDING, ended_in, holder_in
from accoda.testing.conformance.races import in_threads
from accoda.testing.world import World


def joins(waiter: str, key: str = "k") -> NewJob:
    return NewJob(Q, key=key, on_duplicate="attach", waiter=waiter.encode())


async def head_of(store: Store, queue: str = Q) -> int | None:
    job = (await store.peek(queue)).job
    return None if job is None else job.id


class TestPeek(Suite):
    async def test_shows_the_job_that_the_next_take_gives_first(self, store: Store) -> None:
        first, second, third = await add(store, NewJob(Q, rank=2), NewJob(Q, rank=1), NewJob(Q, rank=1))
        for expected in (second, third, first):
            assert await head_of(store) == expected
            assert await head_of(store) == expected, "a look changes nothing"
            assert (await take_one(store)).id == expected
        assert await head_of(store) is None

    async def test_follows_a_new_rank(self, store: Store) -> None:
        first, second = await add(store, NewJob(Q, rank=1), NewJob(Q, rank=2))
        await store.rerank([Rank(Q, second, 0.5)])
        assert await head_of(store) == second
        await store.rerank([Rank(Q, second, 9)])
        assert await head_of(store) == first

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_tells_all_that_find_tells(self, store: Store, world: World, key: str | None) -> None:
        id = await add_one(store, NewJob(Q, b"data", rank=2.5, cost=7, key="k", waiter=b"w", keep_for=9))
        await store.settle([Retry((await take_one(store, worker="one")).lease, delay=1, reason="again")])
        await world.advance(1)
        seen = await store.peek(Q, key)
        assert seen.job == await store.find(id)
        assert seen.job is not None
        assert (seen.job.data, seen.job.cost, seen.job.attempts, seen.job.waiters) == (b"data", 7, 1, 1)

    async def test_tells_the_moment_by_the_stores_clock(self, store: Store, world: World) -> None:
        assert close_to(world, (await store.peek(Q)).at, await world.now())
        await add(store, NewJob(Q, key="k"))
        await world.advance(12.345)
        for key in (None, "k", "nobody's"):
            assert close_to(world, (await store.peek(Q, key)).at, await world.now())

    async def test_of_a_queue_that_was_never_used_finds_nothing(self, store: Store) -> None:
        for seen in (await store.peek("unknown"), await store.peek("unknown", "k", after=0)):
            assert seen == Peek(seen.at)

    async def test_a_paused_queue_has_no_head_but_its_keys_are_held(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q, key="k"))
        await store.pause(Q, until=await world.now() + 10_000)
        assert await head_of(store) is None
        held = (await store.peek(Q, "k")).job
        assert held is not None
        assert held.id == id
        await world.advance(10)
        assert await head_of(store) == id
        await store.pause(Q)
        assert await head_of(store) is None
        await store.resume(Q)
        assert await head_of(store) == id

    async def test_a_delayed_job_is_the_head_once_its_time_has_come(self, store: Store, world: World) -> None:
        later, sooner = await add(store, NewJob(Q, rank=1), NewJob(Q, rank=0, delay=5))
        await world.advance(3)
        assert await head_of(store) == later
        await world.advance(2)
        seen = await store.peek(Q)
        assert seen.job is not None
        assert (seen.job.id, seen.job.state) == (sooner, "ready")

    async def test_a_job_whose_lease_ended_is_the_head_again(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        await take_one(store, lease=5)
        assert await head_of(store) is None
        await world.advance(5)
        seen = await store.peek(Q)
        assert seen.job is not None
        assert (seen.job.id, seen.job.state, seen.job.attempts, seen.job.crashes) == (id, "ready", 1, 1)
        assert (await stats_of(store)).expired == 1

    async def test_leaves_the_job_to_be_taken_as_if_nobody_had_looked(self, store: Store) -> None:
        id = await add_one(store, joins("a"))
        before = await info_of(store, id)
        for key in (None, "k"):
            await store.peek(Q, key, after=0)
        assert await info_of(store, id) == before
        assert (await take_one(store)).attempts == 0

    async def test_looks_at_its_own_queue_only(self, store: Store) -> None:
        (id,) = await add(store, NewJob("other", key="k"))
        assert (await store.peek(Q)).job is None
        assert (await store.peek(Q, "k")).job is None
        assert await head_of(store, "other") == id


class TestPeekAtAKey(Suite):
    @pytest.mark.parametrize("state", HOLDING)
    async def test_shows_who_holds_it(self, store: Store, state: str) -> None:
        held = await holder_in(store, state)
        await add(store, NewJob(Q, rank=-1), NewJob(Q, rank=-1, key="other"))
        assert (await store.peek(Q, "k")).job == held

    @pytest.mark.parametrize("state", ["dead", "done", "gone", "removed"])
    async def test_shows_nobody_once_it_is_free(self, store: Store, state: str) -> None:
        await ended_in(store, state)
        seen = await store.peek(Q, "k", after=0)
        assert seen == Peek(seen.at)

    async def test_shows_the_new_holder_of_a_key_that_was_freed(self, store: Store) -> None:
        await ended_in(store, "dead")
        id = await add_one(store, joins("new"))
        seen = await store.peek(Q, "k", after=0)
        assert seen.job is not None
        assert (seen.job.id, seen.waiters) == (id, (b"new",))

    @pytest.mark.parametrize("state", ["delayed", "taken"])
    async def test_shows_what_is_due_as_done(self, store: Store, world: World, state: str) -> None:
        id = await add_one(store, NewJob(Q, key="k", delay=5 if state == "delayed" else None))
        if state == "taken":
            await take_one(store, lease=5)
        await world.advance(5)
        seen = await store.peek(Q, "k")
        assert seen.job is not None
        assert (seen.job.id, seen.job.state, seen.job.crashes) == (id, "ready", int(state == "taken"))


class TestPeekAtWaiters(Suite):
    @pytest.mark.parametrize("key", [None, "k"])
    async def test_gives_the_rest_in_the_order_in_which_they_joined(self, store: Store, key: str | None) -> None:
        names = [f"{n}" for n in range(12)]  # more than nine: their places sort as numbers, not as text
        await add(store, *map(joins, names))
        everybody = tuple(name.encode() for name in names)
        for after in (0, 1, 9, 11, 12, 13, 10**12):
            seen = await store.peek(Q, key, after=after)
            assert seen.waiters == everybody[after:]
            assert seen.job is not None
            assert seen.job.waiters == 12

    async def test_gives_none_unless_asked(self, store: Store) -> None:
        await add(store, joins("a"))
        assert (await store.peek(Q)).waiters == ()
        assert (await store.peek(Q, "k")).waiters == ()

    async def test_gives_equal_ones_as_often_as_they_joined(self, store: Store) -> None:
        await add(store, joins("same"), joins("same"))
        assert (await store.peek(Q, "k", after=0)).waiters == (b"same", b"same")

    async def test_gives_those_of_a_running_job_and_of_one_that_came_back(self, store: Store) -> None:
        await add(store, joins("a"))
        job = await take_one(store)
        await add(store, joins("b"))
        assert (await store.peek(Q, "k", after=1)).waiters == (b"b",)
        await store.settle([Retry(job.lease, delay=HOUR)])
        await add(store, joins("c"))
        assert (await store.peek(Q, "k", after=1)).waiters == (b"b", b"c")

    async def test_gives_none_of_a_job_that_nobody_waits_for(self, store: Store) -> None:
        await add(store, NewJob(Q, key="k"))
        assert (await store.peek(Q, after=0)).waiters == ()


class TestDrop(Suite):
    @pytest.mark.parametrize("state", HOLDING)
    async def test_removes_the_job_and_frees_its_key(self, store: Store, state: str) -> None:
        old = await holder_in(store, state)
        assert await store.drop(Q, old.id, 1)
        assert await state_of(store, old.id) == "gone"
        assert (await store.peek(Q, "k")).job is None
        assert await take_ids(store) == []
        (answer,) = await store.enqueue([joins("new")])
        assert (answer.what, answer.waiters) == ("created", 1)
        assert answer.id > old.id
        assert (await store.peek(Q, after=0)).waiters == (b"new",), "nobody is inherited"

    @pytest.mark.parametrize("state", HOLDING)
    async def test_is_refused_if_more_wait_than_were_seen(self, store: Store, state: str) -> None:
        old = await holder_in(store, state)
        await store.enqueue([joins("second")])
        before = await info_of(store, old.id)
        assert not await store.drop(Q, old.id, 0)
        assert not await store.drop(Q, old.id, 1)
        assert await info_of(store, old.id) == before
        assert await store.drop(Q, old.id, 2)

    async def test_is_done_if_fewer_wait_than_were_told(self, store: Store) -> None:
        bare, shared = await add(store, NewJob(Q), joins("a"))
        assert await store.drop(Q, bare, 0)
        assert await store.drop(Q, shared, 10**12)
        assert (await stats_of(store)).total == 0

    async def test_of_a_running_job_takes_its_lease(self, store: Store) -> None:
        await add(store, joins("a"))
        job = await take_one(store, lease=HOUR)
        assert await store.drop(Q, job.id, 1)
        assert await store.settle([Done(job.lease, then=[NewJob("next")])]) == lost(job.lease)
        assert await store.extend([job.lease], HOUR) == lost(job.lease)
        assert await store.waiters(job.lease) == []
        assert (await stats_of(store, "next")).total == 0

    async def test_of_a_job_whose_lease_has_ended_removes_it(self, store: Store, world: World) -> None:
        await add(store, joins("a"))
        job = await take_one(store, lease=5)
        await world.advance(5)
        assert await store.drop(Q, job.id, 1)
        stats = await stats_of(store)
        assert (stats.total, stats.expired) == (0, 1)
        assert await take_ids(store) == []

    @pytest.mark.parametrize("state", ["dead", "done"])
    async def test_of_a_job_that_has_ended_changes_nothing(self, store: Store, state: str) -> None:
        id = await ended_in(store, state)
        before = await info_of(store, id)
        assert not await store.drop(Q, id, 99)
        assert await info_of(store, id) == before

    async def test_of_a_job_that_is_not_there_changes_nothing(self, store: Store) -> None:
        (id,) = await add(store, NewJob("other"))
        assert not await store.drop(Q, id, 99), "a job of another queue"
        assert not await store.drop("other", id + 1000, 99), "no job at all"
        assert not await store.drop("unknown", id, 99), "a queue that was never used"
        assert await take_ids(store, "other") == [id]
        assert await store.drop("other", id, 0)
        assert not await store.drop("other", id, 0), "a second time"

    async def test_counts_right(self, store: Store) -> None:
        ready, delayed, kept = await add(store, NewJob(Q, rank=1), NewJob(Q, delay=9), NewJob(Q, rank=2))
        dead = await bury_one(store, NewJob(Q, rank=-2))
        (running,) = await add(store, NewJob(Q, rank=-1))
        assert (await take_one(store)).id == running
        for id in (ready, delayed, running, dead):
            assert await store.drop(Q, id, 0) == (id != dead)
        stats = await stats_of(store)
        assert (stats.ready, stats.delayed, stats.taken, stats.dead, stats.total) == (1, 0, 0, 1, 2)
        assert (stats.done, stats.retried, stats.buried, stats.expired) == (0, 0, 1, 0)
        await finish(store, await take_one(store))
        assert await state_of(store, kept) == "gone"

    async def test_brings_the_next_in_line_to_the_head(self, store: Store) -> None:
        first, second = await add(store, NewJob(Q), NewJob(Q))
        assert await store.drop(Q, first, 0)
        assert await head_of(store) == second


class TestDropRaces(Suite):
    """Whoever was told "attached" is either seen by the drop, which is then refused, or keeps the job."""

    limit = 60.0

    async def test_an_attach_at_the_same_moment_is_never_lost(self, store: Store) -> None:
        for n in range(30):
            id = await add_one(store, joins("first"))
            attach, drop = store.enqueue([joins("second")]), store.drop(Q, id, 1)
            if n % 2:
                (answer,), dropped = await asyncio.gather(attach, drop)
            else:
                dropped, (answer,) = await asyncio.gather(drop, attach)
            if dropped:
                assert (answer.what, answer.waiters) == ("created", 1)
            else:
                assert answer == Enqueued(id, "attached", 2)
            assert (await store.peek(Q, "k", after=0)).waiters[-1:] == (b"second",)
            assert await store.drop(Q, answer.id, answer.waiters)

    async def test_threads_that_attach_and_drop_agree_on_who_was_there(self, store: Store) -> None:
        await everybody_is_accounted_for(store, [store] * 4)

    async def test_handles_that_attach_and_drop_agree_on_who_was_there(self, store: Store, world: World) -> None:
        need_shared(world)
        handles = [await world.open() for _ in range(3)]
        try:
            await everybody_is_accounted_for(store, [store, *handles])
        finally:
            for handle in handles:
                await handle.close()


async def everybody_is_accounted_for(store: Store, handles: list[Store]) -> None:
    """Three attach as fast as they can while one looks and drops; then each waiter must be with the job it was told."""
    told: dict[int, set[bytes]] = {}
    seen: dict[int, set[bytes]] = {}
    busy = {1, 2, 3}

    async def work(n: int) -> None:
        if n == 0:
            while busy:
                await look_and_drop(handles[0], seen)
            return
        try:
            for i in range(25):
                (answer,) = await handles[n].enqueue([joins(f"{n}-{i}")])
                told.setdefault(answer.id, set()).add(f"{n}-{i}".encode())
        finally:
            busy.discard(n)

    await in_threads(work)
    while (await store.peek(Q, "k")).job is not None:
        await look_and_drop(store, seen)
    assert seen == told
    assert (await stats_of(store)).total == 0


async def look_and_drop(store: Store, seen: dict[int, set[bytes]]) -> None:
    found = await store.peek(Q, "k", after=0)
    if found.job is None:
        await asyncio.sleep(0)
        return
    assert found.job.waiters == len(found.waiters), "the job and its waiters are of one moment"
    if await store.drop(Q, found.job.id, found.job.waiters):
        seen[found.job.id] = set(found.waiters)
