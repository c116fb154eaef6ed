"""`look`: one job, in any state, by its id, by its key or at the head of its queue, without taking it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from accoda.model import (
    STATES,
    Bury,
    ById,
    ByKey,
    Cancel,
    Done,
    Head,
    Lanes,
    Look,
    NewJob,
    Outcome,
    Remove,
    Rerank,
    Retry,
    State,
    Target,
)
from accoda.storage.protocol import DUE_AT_ONCE, Store
from accoda.testing.conformance.base import (
    HOUR,
    WAITING,
    Q,
    Suite,
    add,
    add_one,
    close_to,
    find,
    info_of,
    one_in_each,
    stats_of,
    take_one,
    waiters_of,
)
from accoda.testing.conformance.keys import HOLDING, ended_in, holder_in
from accoda.testing.store_fixture import StoreFixture

KEYED: list[Target] = [Head(Q), ByKey(Q, "k")]


def joins(waiter: str, key: str = "k") -> NewJob:
    return NewJob(Q, key=key, on_duplicate="attach", waiter=waiter.encode())


async def head_of(store: Store, queue: str = Q) -> int | None:
    job = (await store.look(Head(queue))).job
    return None if job is None else job.id


class TestLook(Suite):
    async def test_at_an_unused_id_finds_nothing(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        for other in (id + 1, 0, (1 << 53) - 1, (1 << 63) - 1):
            seen = await store.look(ById(other), waiters_after=0, ahead=True)
            assert seen == Look(seen.at)

    async def test_at_an_unused_queue_finds_nothing(self, store: Store) -> None:
        for target in (Head("unknown"), ByKey("unknown", "k")):
            seen = await store.look(target, waiters_after=0, ahead=True)
            assert seen == Look(seen.at)

    async def test_tells_the_state_of_every_job(self, store: Store) -> None:
        for state, id in (await one_in_each(store)).items():
            info = await info_of(store, id)
            assert (info.state, info.data, info.queue) == (state, state.encode(), Q)

    async def test_changes_nothing(self, store: Store) -> None:
        for id in (await one_in_each(store)).values():
            before = await info_of(store, id)
            await store.look(ById(id), waiters_after=0, ahead=True)
            assert await info_of(store, id) == before

    async def test_tells_the_same_by_id_by_key_and_at_the_head(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, b"data", rank=2.5, cost=7, key="k", waiter=b"w", keep_for=9))
        await store.settle([Retry((await take_one(store, worker="one")).lease, delay=1, reason="again")])
        await fixture.advance(1)
        info = await info_of(store, id)
        assert (info.data, info.cost, info.attempts, info.tries, info.waiters) == (b"data", 7, 1, 1, 1)
        for target in KEYED:
            assert (await store.look(target)).job == info

    async def test_tells_the_moment_by_the_stores_clock(self, store: Store, fixture: StoreFixture) -> None:
        assert close_to(fixture, (await store.look(Head(Q))).at, await fixture.now())
        id = await add_one(store, NewJob(Q, key="k"))
        await fixture.advance(12.345)
        for target in (ById(id), ById(id + 1), Head(Q), ByKey(Q, "k"), ByKey(Q, "free"), Head("unknown")):
            assert close_to(fixture, (await store.look(target)).at, await fixture.now())

    @pytest.mark.parametrize("state", STATES)
    async def test_is_up_to_date_however_much_else_is_due(
        self, store: Store, fixture: StoreFixture, state: State
    ) -> None:
        due = {"delayed": NewJob(Q, key="k", delay=10)}.get(state, NewJob(Q, key="k", keep_for=60))
        id = await add_one(store, due)
        if state == "held":
            await store.change([Remove(id)])
            await store.set_lanes(Q, Lanes(limits={"full": 0}))
            id = await add_one(store, replace(due, lane="full"))
        elif state not in WAITING:
            job = await take_one(store, lease=10)
            outcomes: dict[State, Outcome] = {"dead": Bury(job.lease, "x"), "done": Done(job.lease)}
            await store.settle([outcomes[state]] if state in outcomes else [])
            await store.change([Cancel(id)] if state == "cancelled" else [])
        await add(store, *(NewJob(Q, rank=-n, delay=9) for n in range(DUE_AT_ONCE + 200)))
        await fixture.advance(60)
        info = await find(store, id)
        expected = {"taken": "ready", "delayed": "ready", "done": "gone", "cancelled": "gone"}.get(state, state)
        assert (info.state if info is not None else "gone") == expected


class TestLookAtTheHead(Suite):
    async def test_shows_the_job_that_the_next_take_gives_first(self, store: Store) -> None:
        first, second, third = await add(store, NewJob(Q, rank=2), NewJob(Q, rank=1), NewJob(Q, rank=1))
        for expected in (second, third, first):
            assert await head_of(store) == expected
            assert await head_of(store) == expected, "a look changes nothing"
            assert (await take_one(store)).id == expected
        assert await head_of(store) is None

    async def test_follows_a_new_rank(self, store: Store) -> None:
        first, second = await add(store, NewJob(Q, rank=1), NewJob(Q, rank=2))
        await store.change([Rerank(second, 0.5)])
        assert await head_of(store) == second
        await store.change([Rerank(second, 9)])
        assert await head_of(store) == first

    async def test_a_paused_queue_has_no_head_but_its_keys_are_held(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q, key="k"))
        await store.pause(Q, await fixture.now() + 10_000)
        assert await head_of(store) is None
        held = (await store.look(ByKey(Q, "k"))).job
        assert held is not None
        assert held.id == id
        await fixture.advance(10)
        assert await head_of(store) == id
        await store.pause(Q, None)
        assert await head_of(store) is None
        await store.pause(Q, 0)
        assert await head_of(store) == id

    async def test_a_delayed_job_is_the_head_once_its_time_has_come(self, store: Store, fixture: StoreFixture) -> None:
        later, sooner = await add(store, NewJob(Q, rank=1), NewJob(Q, rank=0, delay=5))
        await fixture.advance(3)
        assert await head_of(store) == later
        await fixture.advance(2)
        seen = await store.look(Head(Q))
        assert seen.job is not None
        assert (seen.job.id, seen.job.state) == (sooner, "ready")

    async def test_a_job_whose_lease_ended_is_the_head_again(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await take_one(store, lease=5)
        assert await head_of(store) is None
        await fixture.advance(5)
        seen = await store.look(Head(Q))
        assert seen.job is not None
        assert (seen.job.id, seen.job.state, seen.job.attempts, seen.job.crashes) == (id, "ready", 1, 1)
        assert (await stats_of(store)).expired == 1

    async def test_leaves_the_job_to_be_taken(self, store: Store) -> None:
        id = await add_one(store, joins("a"))
        before = await info_of(store, id)
        for target in KEYED:
            await store.look(target, waiters_after=0)
        assert await info_of(store, id) == before
        assert (await take_one(store)).attempts == 0

    async def test_looks_at_its_own_queue_only(self, store: Store) -> None:
        (id,) = await add(store, NewJob("other", key="k"))
        for target in KEYED:
            assert (await store.look(target)).job is None
        assert await head_of(store, "other") == id


class TestLookAtAKey(Suite):
    @pytest.mark.parametrize("state", HOLDING)
    async def test_shows_its_holder(self, store: Store, state: str) -> None:
        held = await holder_in(store, state)
        await add(store, NewJob(Q, rank=-1), NewJob(Q, rank=-1, key="other"))
        assert (await store.look(ByKey(Q, "k"))).job == held

    @pytest.mark.parametrize("state", ["dead", "done", "cancelled", "gone", "removed"])
    async def test_shows_nothing_once_it_is_free(self, store: Store, state: str) -> None:
        await ended_in(store, state)
        seen = await store.look(ByKey(Q, "k"), waiters_after=0)
        assert seen == Look(seen.at)

    async def test_shows_the_new_holder_of_a_key_that_was_freed(self, store: Store) -> None:
        await ended_in(store, "dead")
        id = await add_one(store, joins("new"))
        seen = await store.look(ByKey(Q, "k"), waiters_after=0)
        assert seen.job is not None
        assert (seen.job.id, seen.waiters) == (id, (b"new",))

    @pytest.mark.parametrize("state", ["delayed", "taken"])
    async def test_shows_what_is_due_as_done(self, store: Store, fixture: StoreFixture, state: str) -> None:
        id = await add_one(store, NewJob(Q, key="k", delay=5 if state == "delayed" else None))
        if state == "taken":
            await take_one(store, lease=5)
        await fixture.advance(5)
        seen = await store.look(ByKey(Q, "k"))
        assert seen.job is not None
        assert (seen.job.id, seen.job.state, seen.job.crashes) == (id, "ready", int(state == "taken"))


class TestLookAtWaiters(Suite):
    @pytest.mark.parametrize("by", ["id", "key", "head"])
    async def test_gives_the_rest_in_the_order_in_which_they_joined(self, store: Store, by: str) -> None:
        names = [f"{n}" for n in range(12)]  # more than nine: their places sort as numbers, not as text
        id, *_ = await add(store, *map(joins, names))
        targets: dict[str, Target] = {"id": ById(id), "key": ByKey(Q, "k"), "head": Head(Q)}
        joined = tuple(name.encode() for name in names)
        for after in (0, 1, 9, 11, 12, 13, 10**12):
            seen = await store.look(targets[by], waiters_after=after)
            assert seen.waiters == joined[after:]
            assert seen.job is not None
            assert seen.job.waiters == 12

    async def test_gives_none_unless_asked(self, store: Store) -> None:
        id = await add_one(store, joins("a"))
        for target in (*KEYED, ById(id)):
            assert (await store.look(target)).waiters == ()

    async def test_gives_equal_ones_as_often_as_they_joined(self, store: Store) -> None:
        await add(store, joins("same"), joins("same"))
        assert (await store.look(ByKey(Q, "k"), waiters_after=0)).waiters == (b"same", b"same")

    async def test_gives_those_of_a_running_job_and_of_one_that_came_back(self, store: Store) -> None:
        await add(store, joins("a"))
        job = await take_one(store)
        await add(store, joins("b"))
        assert (await store.look(ByKey(Q, "k"), waiters_after=1)).waiters == (b"b",)
        await store.settle([Retry(job.lease, delay=HOUR)])
        await add(store, joins("c"))
        assert (await store.look(ByKey(Q, "k"), waiters_after=1)).waiters == (b"b", b"c")

    async def test_gives_none_of_a_job_without_waiters(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q, key="k"))
        for id in ids:
            assert (await store.look(ById(id), waiters_after=0)).waiters == ()

    async def test_gives_those_of_a_dead_job(self, store: Store) -> None:
        id = await add_one(store, joins("a"))
        await store.settle([Bury((await take_one(store)).lease, "x")])
        assert (await store.look(ById(id), waiters_after=0)).waiters == (b"a",)

    async def test_a_holder_reads_those_that_joined_while_it_ran(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, joins("c"))
        await add_one(store, joins("a"))
        job = await take_one(store, lease=10)
        await add_one(store, joins("b"))
        assert await waiters_of(store, job.lease) == [b"c", b"a", b"b"]
        await fixture.advance(10)
        again = await take_one(store)
        await add_one(store, joins("0"))
        assert await waiters_of(store, again.lease) == [b"c", b"a", b"b", b"0"]
        assert again.waiters == 3

    async def test_of_different_jobs_do_not_mix(self, store: Store) -> None:
        new = [NewJob(Q, key="k", waiter=b"1"), NewJob(Q, key="l", waiter=b"2"), NewJob("r", key="k", waiter=b"3")]
        ids = await add(store, *new)
        looks = [await store.look(ById(id), waiters_after=0) for id in ids]
        assert [seen.waiters for seen in looks] == [(b"1",), (b"2",), (b"3",)]
