"""`find`, `browse`, `remove`, `revive`, `purge`: what people look at and put right."""

from __future__ import annotations

import pytest

from accoda.model import STATES, Bury, Done, Enqueued, JobInfo, NewJob, State
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
    state_of,
    stats_of,
    take_ids,
    take_one,
)
from accoda.testing.world import World


async def one_in_each(store: Store) -> dict[State, int]:
    """A job in each state, in the queue Q."""
    done = await add_one(store, NewJob(Q, b"done", keep_for=HOUR))
    await finish(store, await take_one(store))
    dead = await bury_one(store, NewJob(Q, b"dead"))
    taken = await add_one(store, NewJob(Q, b"taken"))
    await take_one(store, lease=HOUR)
    ready, delayed = await add(store, NewJob(Q, b"ready"), NewJob(Q, b"delayed", delay=HOUR))
    return {"done": done, "dead": dead, "taken": taken, "ready": ready, "delayed": delayed}


class TestFind(Suite):
    async def test_of_an_id_that_nobody_has_is_none(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        for other in (id + 1, 0, (1 << 63) - 1):
            assert await store.find(other) is None

    async def test_tells_the_state_of_every_job(self, store: Store) -> None:
        for state, id in (await one_in_each(store)).items():
            info = await info_of(store, id)
            assert (info.state, info.data, info.queue) == (state, state.encode(), Q)

    async def test_changes_nothing(self, store: Store) -> None:
        for id in (await one_in_each(store)).values():
            assert await store.find(id) == await store.find(id)


class TestBrowse(Suite):
    @pytest.mark.parametrize("state", STATES)
    async def test_shows_what_find_shows(self, store: Store, state: State) -> None:
        ids = await one_in_each(store)
        assert await store.browse(Q, state) == [await info_of(store, ids[state])]
        assert await store.browse("other", state) == []

    async def test_goes_by_id_and_page_by_page(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, rank=-n) for n in range(10)))
        seen: list[int] = []
        page: list[JobInfo] = await store.browse(Q, "ready", limit=4)
        while page:
            assert len(page) <= 4
            seen += [info.id for info in page]
            page = await store.browse(Q, "ready", after=page[-1].id, limit=4)
        assert seen == ids

    async def test_begins_after_any_number(self, store: Store) -> None:
        first, second, third = await add(store, NewJob(Q), NewJob(Q), NewJob(Q))
        await store.remove([second])
        assert [info.id for info in await store.browse(Q, "ready", after=second)] == [third]
        assert [info.id for info in await store.browse(Q, "ready", after=0)] == [first, third]
        assert await store.browse(Q, "ready", after=third) == []

    async def test_of_a_page_without_room_is_empty(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        assert await store.browse(Q, "ready", limit=0) == []

    async def test_shows_a_hundred_unless_told(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q) for _ in range(120)))
        assert [info.id for info in await store.browse(Q, "ready")] == ids[:100]


class TestRemove(Suite):
    @pytest.mark.parametrize("state", STATES)
    async def test_deletes_a_job_in_any_state(self, store: Store, state: State) -> None:
        ids = await one_in_each(store)
        assert await store.remove([ids[state]]) == 1
        for other, id in ids.items():
            assert await state_of(store, id) == ("gone" if other == state else other)

    async def test_counts_each_job_once(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob("other"))
        assert await store.remove([*ids, ids[0], 10**6]) == 2
        assert await store.remove(ids) == 0
        assert await store.remove([]) == 0

    async def test_takes_the_lease_of_a_running_job(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, key="k", waiter=b"w"))
        job = await take_one(store)
        assert await store.remove([id]) == 1
        assert await store.settle([Done(job.lease, then=[NewJob("next")])]) == lost(job.lease)
        assert await store.extend([job.lease], 60) == lost(job.lease)
        assert await store.waiters(job.lease) == []
        assert (await stats_of(store, "next")).total == 0
        assert (await stats_of(store)).done == 0

    async def test_leaves_nothing_that_comes_back(self, store: Store, world: World) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q, delay=5))
        await take_one(store, lease=5)
        await store.remove(ids)
        await world.advance(60)
        assert await take_ids(store) == []
        assert (await stats_of(store)).expired == 0

    async def test_of_a_dead_job_leaves_the_key_to_its_new_holder(self, store: Store) -> None:
        dead = await bury_one(store, NewJob(Q, key="k"))
        holder = await add_one(store, NewJob(Q, key="k"))
        await store.remove([dead])
        assert await store.enqueue([NewJob(Q, key="k")]) == [Enqueued(holder, "kept", 0)]


class TestRevive(Suite):
    async def test_makes_a_dead_job_ready_again(self, store: Store, world: World) -> None:
        id = await bury_one(store, NewJob(Q, b"x", rank=3, cost=2, key="k"))
        await world.advance(30)
        assert await store.revive([id]) == 1
        job = await take_one(store)
        assert (job.id, job.attempts, job.rank, job.cost, job.key, job.data) == (id, 1, 3, 2, "k", b"x")
        assert close_to(world, job.start_time, await world.now())
        stats = await stats_of(store)
        assert (stats.dead, stats.taken, stats.buried, stats.retried) == (0, 1, 1, 0)

    async def test_gives_a_lease_that_the_old_one_does_not_fit(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        old = await take_one(store)
        await store.settle([Bury(old.lease, "x")])
        await store.revive([id])
        new = await take_one(store)
        assert new.attempts > old.attempts
        assert await store.settle([Done(old.lease)]) == lost(old.lease)
        await finish(store, new)

    async def test_counts_only_dead_jobs_and_each_once(self, store: Store) -> None:
        ids = await one_in_each(store)
        assert await store.revive([*ids.values(), ids["dead"], 10**6]) == 1
        assert await state_of(store, ids["dead"]) == "ready"
        assert await state_of(store, ids["taken"]) == "taken"
        assert await store.revive([]) == 0

    async def test_leaves_a_job_dead_whose_key_is_held(self, store: Store) -> None:
        dead = await bury_one(store, NewJob(Q, b"old", key="k"))
        holder = await add_one(store, NewJob(Q, b"new", key="k"))
        before = await info_of(store, dead)
        assert await store.revive([dead]) == 0
        assert await info_of(store, dead) == before
        await finish(store, await take_one(store))
        assert await store.find(holder) is None
        assert await store.revive([dead]) == 1

    async def test_holds_the_key_again(self, store: Store) -> None:
        id = await bury_one(store, NewJob(Q, key="k"))
        await store.revive([id])
        assert await store.enqueue([NewJob(Q, key="k")]) == [Enqueued(id, "kept", 0)]

    async def test_of_two_with_the_same_key_revives_the_first_named(self, store: Store) -> None:
        first = await bury_one(store, NewJob(Q, key="k"))
        second = await bury_one(store, NewJob(Q, key="k"))
        assert await store.revive([second, first]) == 1
        assert [await state_of(store, id) for id in (first, second)] == ["dead", "ready"]

    async def test_can_happen_many_times(self, store: Store) -> None:
        id = await bury_one(store, NewJob(Q))
        for attempts in range(1, 4):
            assert await store.revive([id]) == 1
            job = await take_one(store)
            assert job.attempts == attempts
            await store.settle([Bury(job.lease, "again")])
        assert (await stats_of(store)).buried == 4


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

    async def test_looks_at_the_present_moment(self, store: Store, world: World) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q, delay=10))
        await take_one(store, lease=10)
        await world.advance(10)
        assert await store.purge(Q, "taken") == 0
        assert await store.purge(Q, "delayed") == 0
        assert await store.purge(Q, "ready") == 2
        assert [await state_of(store, id) for id in ids] == ["gone", "gone"]
