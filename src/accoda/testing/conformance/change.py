"""`change`: what people and demand put right. `conformance.start_now` has the tests of `StartNow`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from accoda.model import (
    ENDED,
    STATES,
    Bury,
    ByKey,
    Cancel,
    Change,
    Done,
    Enqueued,
    Head,
    NewJob,
    NotCrashed,
    Remove,
    Rerank,
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
    close_to,
    find,
    finish,
    info_of,
    lost,
    need_shared,
    one_in_each,
    state_of,
    stats_of,
    take_ids,
    take_one,
    waiters_of,
)
from accoda.testing.conformance.keys import HOLDING, holder_in
from accoda.testing.conformance.look import head_of, joins
from accoda.testing.conformance.races import in_threads
from accoda.testing.store_fixture import StoreFixture

KINDS: dict[str, Callable[..., Change]] = {
    "remove": Remove,
    "cancel": Cancel,
    "revive": Revive,
    "start now": StartNow,
    "not crashed": NotCrashed,
    "rerank": lambda id, **fence: Rerank(id, 7.0, **fence),
}


async def job_for(store: Store, fixture: StoreFixture, kind: str) -> int:
    """A job with two waiters, in a state that the change is for."""
    delay = HOUR if kind == "start now" else None
    new = [NewJob(Q, key="k", waiter=name, on_duplicate="attach", delay=delay) for name in (b"1", b"2")]
    id, _ = await add(store, *new)
    if kind == "revive":
        await store.settle([Bury((await take_one(store)).lease, "x")])
    elif kind == "not crashed":
        await take_one(store, lease=1)
        await fixture.advance(1)
    return id


class TestChange(Suite):
    async def test_of_nothing_changes_nothing(self, store: Store) -> None:
        assert await store.change([]) == 0

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(("seen", "applied"), [(None, 1), (0, 0), (1, 0), (2, 1), (3, 1), (10**12, 1)])
    async def test_is_applied_only_if_no_more_wait_than_were_seen(
        self, store: Store, fixture: StoreFixture, kind: str, seen: int | None, applied: int
    ) -> None:
        id = await job_for(store, fixture, kind)
        before = await find(store, id)
        assert await store.change([KINDS[kind](id, waiters=seen)]) == applied
        assert (await find(store, id) == before) == (not applied)

    @pytest.mark.parametrize("kind", KINDS)
    async def test_is_applied_only_in_the_queue_that_it_names(
        self, store: Store, fixture: StoreFixture, kind: str
    ) -> None:
        id = await job_for(store, fixture, kind)
        await add(store, NewJob("other"))
        before = await info_of(store, id)
        change = KINDS[kind]
        assert await store.change([change(id, queue="other"), change(id, queue="unknown")]) == 0
        assert await info_of(store, id) == before
        assert await store.change([change(id, queue=Q)]) == 1

    @pytest.mark.parametrize("kind", KINDS)
    async def test_of_an_id_that_is_not_there_is_not_applied(
        self, store: Store, fixture: StoreFixture, kind: str
    ) -> None:
        id = await job_for(store, fixture, kind)
        unknown = [id + 10**6, 0, 1 << 60, (1 << 63) - 1]
        assert await store.change([KINDS[kind](each, queue=queue) for each in unknown for queue in (None, Q)]) == 0

    async def test_of_several_kinds_in_one_call_are_applied_in_order(self, store: Store) -> None:
        dead = await bury_one(store, NewJob(Q, key="k"))
        holder, delayed = await add(store, NewJob(Q, key="k"), NewJob("other", delay=HOUR))
        changes: list[Change] = [
            Revive(dead), Remove(holder), Revive(dead), Rerank(dead, 3.0), StartNow(delayed), StartNow(delayed),
            Rerank(delayed, 2.0), Remove(10**6),
        ]  # fmt: skip
        assert await store.change(changes) == 5
        assert [(job.id, job.rank) for job in await store.take(Q, 9)] == [(dead, 3.0)]
        assert [(job.id, job.rank) for job in await store.take("other", 9)] == [(delayed, 2.0)]
        assert await state_of(store, holder) == "gone"

    async def test_of_many_jobs_in_one_call(self, store: Store) -> None:
        ids = await add(store, *(NewJob(f"{Q}{n % 3}", key=str(n)) for n in range(300)))
        assert await store.change([Rerank(id, -id) if n % 2 else Remove(id) for n, id in enumerate(ids)]) == 300
        left = [job.id for n in range(3) for job in await store.take(f"{Q}{n}", 300)]
        assert sorted(left) == ids[1::2]


class TestRemove(Suite):
    @pytest.mark.parametrize("state", STATES)
    async def test_deletes_a_job_in_any_state(self, store: Store, state: State) -> None:
        ids = await one_in_each(store)
        assert await store.change([Remove(ids[state])]) == 1
        for other, id in ids.items():
            assert await state_of(store, id) == ("gone" if other == state else other)

    @pytest.mark.parametrize("state", STATES)
    async def test_with_a_fence_leaves_jobs_alone_that_have_ended(self, store: Store, state: State) -> None:
        id = (await one_in_each(store))[state]
        before = await find(store, id)
        ended = state in ENDED
        assert await store.change([Remove(id, waiters=99)]) == (not ended)
        assert await find(store, id) == (before if ended else None)

    @pytest.mark.parametrize("fence", [None, 1])
    @pytest.mark.parametrize("state", HOLDING)
    async def test_frees_the_key_and_leaves_no_waiter(self, store: Store, state: str, fence: int | None) -> None:
        old = await holder_in(store, state)
        assert await store.change([Remove(old.id, waiters=fence)]) == 1
        assert await state_of(store, old.id) == "gone"
        assert (await store.look(ByKey(Q, "k"))).job is None
        assert await take_ids(store) == []
        (answer,) = await store.enqueue([joins("new")])
        assert (answer.what, answer.waiters) == ("created", 1)
        assert answer.id > old.id
        assert (await store.look(Head(Q), waiters_after=0)).waiters == (b"new",), "no waiter is inherited"

    @pytest.mark.parametrize("state", HOLDING)
    async def test_is_refused_if_more_wait_than_were_seen(self, store: Store, state: str) -> None:
        old = await holder_in(store, state)
        await store.enqueue([joins("second")])
        before = await info_of(store, old.id)
        assert await store.change([Remove(old.id, waiters=0), Remove(old.id, waiters=1)]) == 0
        assert await info_of(store, old.id) == before
        assert await store.change([Remove(old.id, waiters=2)]) == 1

    @pytest.mark.parametrize("fence", [None, 0])
    async def test_counts_each_job_once(self, store: Store, fence: int | None) -> None:
        ids = await add(store, NewJob(Q), NewJob("other"))
        assert await store.change([Remove(id, fence) for id in [*ids, ids[0], 10**6]]) == 2
        assert await store.change([Remove(id, fence) for id in ids]) == 0

    @pytest.mark.parametrize("fence", [None, 1])
    async def test_takes_the_lease_of_a_running_job(self, store: Store, fence: int | None) -> None:
        id = await add_one(store, joins("a"))
        job = await take_one(store, lease=HOUR)
        assert await store.change([Remove(id, fence)]) == 1
        assert await store.settle([Done(job.lease, then=[NewJob("next")])]) == lost(job.lease)
        assert await store.extend([job.lease], HOUR) == lost(job.lease)
        assert await waiters_of(store, job.lease) == []
        assert (await stats_of(store, "next")).total == (await stats_of(store)).done == 0

    @pytest.mark.parametrize("fence", [None, 1])
    async def test_of_a_job_whose_lease_has_ended_removes_it(
        self, store: Store, fixture: StoreFixture, fence: int | None
    ) -> None:
        id = await add_one(store, joins("a"))
        await take_one(store, lease=5)
        await fixture.advance(5)
        assert await store.change([Remove(id, fence)]) == 1
        stats = await stats_of(store)
        assert (stats.total, stats.expired) == (0, 1)
        assert await take_ids(store) == []

    async def test_leaves_nothing_that_comes_back(self, store: Store, fixture: StoreFixture) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q, delay=5))
        await take_one(store, lease=5)
        await store.change([Remove(id) for id in ids])
        await fixture.advance(60)
        assert await take_ids(store) == []
        assert (await stats_of(store)).expired == 0

    async def test_of_a_dead_job_leaves_the_key_to_its_new_holder(self, store: Store) -> None:
        dead = await bury_one(store, NewJob(Q, key="k"))
        holder = await add_one(store, NewJob(Q, key="k"))
        await store.change([Remove(dead)])
        assert await store.enqueue([NewJob(Q, key="k")]) == [Enqueued(holder, "kept", 0)]

    async def test_with_a_fence_counts_right(self, store: Store) -> None:
        ready, delayed, kept = await add(store, NewJob(Q, rank=1), NewJob(Q, delay=9), NewJob(Q, rank=2))
        dead = await bury_one(store, NewJob(Q, rank=-2))
        (running,) = await add(store, NewJob(Q, rank=-1))
        assert (await take_one(store)).id == running
        assert await store.change([Remove(id, waiters=0) for id in (ready, delayed, running, dead)]) == 3
        stats = await stats_of(store)
        assert (stats.ready, stats.delayed, stats.taken, stats.dead, stats.total) == (1, 0, 0, 1, 2)
        assert (stats.done, stats.retried, stats.buried, stats.expired) == (0, 0, 1, 0)
        await finish(store, await take_one(store))
        assert await state_of(store, kept) == "gone"

    async def test_brings_the_next_in_line_to_the_head(self, store: Store) -> None:
        first, second = await add(store, NewJob(Q), NewJob(Q))
        assert await store.change([Remove(first, waiters=0)]) == 1
        assert await head_of(store) == second


class TestRevive(Suite):
    async def test_makes_a_dead_job_ready_again(self, store: Store, fixture: StoreFixture) -> None:
        id = await bury_one(store, NewJob(Q, b"x", rank=3, cost=2, key="k"))
        await fixture.advance(30)
        assert await store.change([Revive(id)]) == 1
        job = await take_one(store)
        assert (job.id, job.attempts, job.rank, job.cost, job.key, job.data) == (id, 1, 3, 2, "k", b"x")
        assert close_to(fixture, job.start_time, await fixture.now())
        stats = await stats_of(store)
        assert (stats.dead, stats.taken, stats.buried, stats.retried) == (0, 1, 1, 0)

    async def test_gives_a_lease_that_the_old_one_does_not_fit(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        old = await take_one(store)
        await store.settle([Bury(old.lease, "x")])
        await store.change([Revive(id)])
        new = await take_one(store)
        assert new.attempts > old.attempts
        assert await store.settle([Done(old.lease)]) == lost(old.lease)
        await finish(store, new)

    async def test_counts_only_dead_jobs_and_each_once(self, store: Store) -> None:
        ids = await one_in_each(store)
        assert await store.change([Revive(id) for id in [*ids.values(), ids["dead"], 10**6]]) == 1
        assert await state_of(store, ids["dead"]) == "ready"
        assert await state_of(store, ids["taken"]) == "taken"
        assert await store.change([]) == 0

    async def test_leaves_a_job_dead_whose_key_is_held(self, store: Store) -> None:
        dead = await bury_one(store, NewJob(Q, b"old", key="k"))
        holder = await add_one(store, NewJob(Q, b"new", key="k"))
        before = await info_of(store, dead)
        assert await store.change([Revive(dead)]) == 0
        assert await info_of(store, dead) == before
        await finish(store, await take_one(store))
        assert await find(store, holder) is None
        assert await store.change([Revive(dead)]) == 1

    async def test_holds_the_key_again(self, store: Store) -> None:
        id = await bury_one(store, NewJob(Q, key="k"))
        await store.change([Revive(id)])
        assert await store.enqueue([NewJob(Q, key="k")]) == [Enqueued(id, "kept", 0)]

    async def test_of_two_with_the_same_key_revives_the_first_named(self, store: Store) -> None:
        first = await bury_one(store, NewJob(Q, key="k"))
        second = await bury_one(store, NewJob(Q, key="k"))
        assert await store.change([Revive(second), Revive(first)]) == 1
        assert [await state_of(store, id) for id in (first, second)] == ["dead", "ready"]

    async def test_can_happen_many_times(self, store: Store) -> None:
        id = await bury_one(store, NewJob(Q))
        for attempts in range(1, 4):
            assert await store.change([Revive(id)]) == 1
            job = await take_one(store)
            assert job.attempts == attempts
            await store.settle([Bury(job.lease, "again")])
        assert (await stats_of(store)).buried == 4


class TestRerank(Suite):
    async def test_changes_the_order_of_waiting_jobs(self, store: Store) -> None:
        a, b, c = await add(store, NewJob(Q), NewJob(Q), NewJob(Q))
        assert await store.change([Rerank(c, -1), Rerank(a, 5.5)]) == 2
        assert [(job.id, job.rank) for job in await store.take(Q, 9)] == [(c, -1), (b, 0), (a, 5.5)]

    async def test_of_a_delayed_job_counts_when_it_comes_due(self, store: Store, fixture: StoreFixture) -> None:
        ready, delayed = await add(store, NewJob(Q), NewJob(Q, rank=9, delay=10))
        assert await store.change([Rerank(delayed, -1)]) == 1
        assert await state_of(store, delayed) == "delayed"
        assert await take_ids(store, count=0) == []
        await fixture.advance(10)
        assert await take_ids(store) == [delayed, ready]

    async def test_leaves_jobs_alone_that_do_not_wait(self, store: Store) -> None:
        taken, dead, done = await add(store, NewJob(Q, rank=1), NewJob(Q, rank=2), NewJob(Q, rank=3, keep_for=60))
        _, second, third = await store.take(Q, 3)
        await store.settle([Bury(second.lease, "x")])
        await finish(store, third)
        assert await store.change([Rerank(id, -7) for id in (taken, dead, done, 10**6)]) == 0
        assert [(await info_of(store, id)).rank for id in (taken, dead, done)] == [1, 2, 3]

    async def test_of_the_same_job_twice_ends_with_the_last(self, store: Store) -> None:
        first, second = await add(store, NewJob(Q), NewJob(Q))
        assert await store.change([Rerank(first, 5), Rerank(first, -5), Rerank(first, 1)]) == 3
        assert [(job.id, job.rank) for job in await store.take(Q, 9)] == [(second, 0), (first, 1)]

    async def test_to_and_fro_hands_the_job_out_once(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, rank=1))
        for rank in (2, 1, 3, 1):
            await store.change([Rerank(id, rank)])
        assert await take_ids(store) == [id]

    async def test_sees_a_lease_that_ended(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await take_one(store, lease=10)
        await fixture.advance(10)
        assert await store.change([Rerank(id, 3)]) == 1
        assert (await take_one(store)).rank == 3


class TestRemoveRaces(Suite):
    """A waiter that was told "attached" is either counted by the removal, which is then not applied, or has its job."""

    limit = 60.0

    async def test_an_attach_at_the_same_moment_is_never_lost(self, store: Store) -> None:
        for n in range(30):
            id = await add_one(store, joins("first"))
            attach, remove = store.enqueue([joins("second")]), store.change([Remove(id, waiters=1)])
            if n % 2:
                (answer,), removed = await asyncio.gather(attach, remove)
            else:
                removed, (answer,) = await asyncio.gather(remove, attach)
            if removed:
                assert (answer.what, answer.waiters) == ("created", 1)
            else:
                assert answer == Enqueued(id, "attached", 2)
            assert (await store.look(ByKey(Q, "k"), waiters_after=0)).waiters[-1:] == (b"second",)
            assert await store.change([Remove(answer.id, waiters=answer.waiters)])

    async def test_threads_that_attach_and_remove_agree_on_the_waiters(self, store: Store) -> None:
        await every_waiter_is_accounted_for(store, [store] * 4)

    async def test_handles_that_attach_and_remove_agree_on_the_waiters(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        need_shared(fixture)
        handles = [await fixture.open() for _ in range(3)]
        try:
            await every_waiter_is_accounted_for(store, [store, *handles])
        finally:
            for handle in handles:
                await handle.close()


async def every_waiter_is_accounted_for(store: Store, handles: list[Store]) -> None:
    """Three attach as fast as they can while one looks and removes; each waiter must be with the job it was told."""
    told: dict[int, set[bytes]] = {}
    seen: dict[int, set[bytes]] = {}
    busy = {1, 2, 3}

    async def work(n: int) -> None:
        if n == 0:
            while busy:
                await look_and_remove(handles[0], seen)
            return
        try:
            for i in range(25):
                (answer,) = await handles[n].enqueue([joins(f"{n}-{i}")])
                told.setdefault(answer.id, set()).add(f"{n}-{i}".encode())
        finally:
            busy.discard(n)

    await in_threads(work)
    while (await store.look(ByKey(Q, "k"))).job is not None:
        await look_and_remove(store, seen)
    assert seen == told
    assert (await stats_of(store)).total == 0


async def look_and_remove(store: Store, seen: dict[int, set[bytes]]) -> None:
    found = await store.look(ByKey(Q, "k"), waiters_after=0)
    if found.job is None:
        await asyncio.sleep(0)
        return
    assert found.job.waiters == len(found.waiters), "the job and its waiters are of one moment"
    if await store.change([Remove(found.job.id, waiters=found.job.waiters)]):
        seen[found.job.id] = set(found.waiters)
