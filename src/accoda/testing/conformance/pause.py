"""`pause` and `resume`."""

from __future__ import annotations

from accoda.model import Done, NewJob, Rank, Retry
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    Q,
    Suite,
    add,
    add_one,
    info_of,
    need_exact,
    state_of,
    stats_of,
    take_ids,
)
from accoda.testing.world import World


class TestPause(Suite):
    async def test_a_paused_queue_gives_nothing_until_it_is_resumed(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        await store.pause(Q)
        assert await take_ids(store) == []
        await world.advance(1_000_000)
        assert await take_ids(store) == []
        await store.resume(Q)
        assert await take_ids(store) == [id]

    async def test_a_pause_with_an_end_ends_by_itself(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        until = await world.now() + 30_000
        await store.pause(Q, until)
        stats = await stats_of(store)
        assert (stats.paused, stats.paused_until, stats.ready) == (True, until, 1)
        await world.advance(29)
        assert await take_ids(store) == []
        await world.advance(1)
        stats = await stats_of(store)
        assert (stats.paused, stats.paused_until) == (False, None)
        assert await take_ids(store) == [id]

    async def test_it_ends_at_the_exact_millisecond(self, store: Store, world: World) -> None:
        need_exact(world)
        id = await add_one(store, NewJob(Q))
        await store.pause(Q, await world.now() + 2)
        await world.advance(0.001)
        assert await take_ids(store) == []
        await world.advance(0.001)
        assert await take_ids(store) == [id]

    async def test_a_pause_until_the_past_is_none(self, store: Store, world: World) -> None:
        id = await add_one(store, NewJob(Q))
        await store.pause(Q, await world.now() - 5)
        assert not (await stats_of(store)).paused
        assert await take_ids(store) == [id]

    async def test_the_last_pause_counts(self, store: Store, world: World) -> None:
        await add_one(store, NewJob(Q))
        await store.pause(Q, await world.now() + 5_000)
        await store.pause(Q)
        await world.advance(10)
        stats = await stats_of(store)
        assert (stats.paused, stats.paused_until) == (True, None)
        await store.pause(Q, await world.now() + 5_000)
        await world.advance(5)
        assert len(await take_ids(store)) == 1

    async def test_other_queues_go_on(self, store: Store) -> None:
        await store.pause("a")
        (id,) = await add(store, NewJob("a.b"))
        assert await take_ids(store, "a.b") == [id]

    async def test_a_queue_can_be_paused_before_its_first_job(self, store: Store) -> None:
        await store.pause(Q)
        id = await add_one(store, NewJob(Q))
        assert await take_ids(store) == []
        assert (await stats_of(store)).paused
        await store.resume(Q)
        assert await take_ids(store) == [id]

    async def test_resuming_what_is_not_paused_does_no_harm(self, store: Store) -> None:
        await store.resume(Q)
        await store.resume("never-used")
        id = await add_one(store, NewJob(Q))
        assert await take_ids(store) == [id]

    async def test_running_jobs_go_on(self, store: Store, world: World) -> None:
        await add(store, NewJob(Q, key="k", waiter=b"w"), NewJob(Q), NewJob(Q))
        one, two, three = await store.take(Q, 3, lease=10)
        await store.pause(Q)
        assert await store.extend([one.lease], 60) == []
        assert await store.waiters(one.lease) == [b"w"]
        assert await store.settle([Done(one.lease), Retry(two.lease)]) == []
        await world.advance(10)
        assert [await state_of(store, job.id) for job in (one, two, three)] == ["gone", "ready", "ready"]

    async def test_a_paused_queue_still_takes_in_jobs_and_ranks(self, store: Store, world: World) -> None:
        await store.pause(Q)
        first, second = await add(store, NewJob(Q), NewJob(Q, delay=5))
        assert await store.rerank([Rank(Q, second, -1)]) == 1
        await world.advance(5)
        assert (await info_of(store, second)).state == "ready"
        await store.resume(Q)
        assert await take_ids(store) == [second, first]
