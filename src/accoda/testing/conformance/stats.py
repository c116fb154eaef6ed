"""`stats`: every job is in exactly one count, and every event is counted once."""

from __future__ import annotations

from accoda.model import Bury, Done, NewJob, Outcome, QueueStats, Remove, Retry, Revive
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    finish,
    need_exact,
    stats_of,
    take_ids,
    take_one,
)
from accoda.testing.store_fixture import StoreFixture


async def conserved(store: Store, created: int) -> None:
    """Every job that was created is still in a state, or was counted when it left."""
    stats = await stats_of(store)
    assert stats.total == stats.ready + stats.taken + stats.delayed + stats.dead
    assert stats.total + stats.done == created


class TestStats(Suite):
    async def test_of_a_new_store_know_no_queue(self, store: Store) -> None:
        assert (await store.stats()).queues == {}

    async def test_count_each_state_of_each_queue(self, store: Store) -> None:
        await add(store, *(NewJob(Q) for _ in range(5)), NewJob(Q, delay=60), NewJob("other"))
        taken, buried = await store.take(Q, 2, lease=HOUR)
        await store.settle([Bury(buried.lease, "x")])
        stats = await stats_of(store)
        assert (stats.total, stats.ready, stats.taken, stats.delayed, stats.dead) == (6, 3, 1, 1, 1)
        assert (await stats_of(store, "other")).ready == 1
        await finish(store, taken)
        assert (await stats_of(store)).total == 5

    async def test_remember_a_queue_that_is_empty_again(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        await finish(store, await take_one(store))
        assert (await store.stats()).queues[Q] == QueueStats(done=1)

    async def test_conserve_every_job_through_all_moves(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, *(NewJob(Q, rank=n % 3, delay=5 * (n % 2)) for n in range(20)))
        await conserved(store, 20)
        for round_ in range(6):
            jobs = await store.take(Q, 5, lease=10)
            outcomes: list[Outcome] = [
                Done(jobs[0].lease),
                Retry(jobs[1].lease, delay=7),
                Bury(jobs[2].lease, "x"),
                Retry(jobs[3].lease),
            ]
            assert await store.settle(outcomes[: 2 + round_ % 3]) == []
            await conserved(store, 20)
            await fixture.advance(10)
            await conserved(store, 20)
        stats = await stats_of(store)
        assert (stats.done, stats.retried, stats.buried, stats.expired) == (6, 8, 4, 12)
        assert await store.change([Revive(info.id) for info in await store.browse(Q, "dead")]) == 4
        await conserved(store, 20)
        assert (await stats_of(store)).dead == 0

    async def test_do_not_count_a_duplicate(self, store: Store) -> None:
        await add(
            store,
            NewJob(Q, key="k"),
            NewJob(Q, key="k"),
            NewJob(Q, key="k", on_duplicate="attach", waiter=b"w"),
            NewJob(Q, key="k", on_duplicate="replace", delay=9),
        )
        stats = await stats_of(store)
        assert (stats.total, stats.delayed, stats.ready) == (1, 1, 0)

    async def test_follow_a_replaced_run(self, store: Store) -> None:
        await add_one(store, NewJob(Q, key="k"))
        await take_one(store)
        await store.enqueue([NewJob(Q, key="k", on_duplicate="replace")])
        stats = await stats_of(store)
        assert (stats.total, stats.ready, stats.taken) == (1, 1, 0)
        assert (stats.retried, stats.expired, stats.done) == (0, 0, 0)

    async def test_follow_removed_and_purged_jobs(self, store: Store) -> None:
        ready, delayed, _ = await add(store, NewJob(Q, rank=9), NewJob(Q, delay=60), NewJob(Q))
        await take_one(store)
        await store.change([Remove(ready), Remove(delayed)])
        stats = await stats_of(store)
        assert (stats.total, stats.ready, stats.delayed, stats.taken) == (1, 0, 0, 1)
        await store.purge(Q, "taken")
        assert await stats_of(store) == QueueStats()

    async def test_move_with_time_without_any_other_call(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, NewJob(Q), NewJob(Q, delay=10))
        await take_one(store, lease=20)
        await fixture.advance(10)
        stats = await stats_of(store)
        assert (stats.ready, stats.delayed, stats.taken) == (1, 0, 1)
        await fixture.advance(10)
        stats = await stats_of(store)
        assert (stats.ready, stats.delayed, stats.taken, stats.expired) == (2, 0, 0, 1)


class TestOldestAge(Suite):
    async def test_is_zero_where_nothing_is_ready(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, NewJob(Q), NewJob(Q, delay=HOUR))
        await take_one(store, lease=HOUR)
        await fixture.advance(60)
        assert (await stats_of(store)).oldest_age == 0

    async def test_is_the_age_of_the_ready_job_that_was_created_first(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        need_exact(fixture)
        await add_one(store, NewJob(Q, rank=9))
        await fixture.advance(5)
        await add_one(store, NewJob(Q, rank=1))
        await fixture.advance(2.5)
        assert (await stats_of(store)).oldest_age == 7.5
        assert len(await take_ids(store, count=1)) == 1, "the younger goes first"
        assert (await stats_of(store)).oldest_age == 7.5
        assert len(await take_ids(store, count=1)) == 1
        assert (await stats_of(store)).oldest_age == 0

    async def test_counts_a_delayed_job_from_its_creation_once_it_is_ready(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        need_exact(fixture)
        await add_one(store, NewJob(Q, delay=10))
        await fixture.advance(10)
        assert (await stats_of(store)).oldest_age == 10

    async def test_counts_a_job_that_came_back_from_its_creation(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        await add_one(store, NewJob(Q))
        await fixture.advance(1)
        await add_one(store, NewJob(Q))
        await take_one(store, lease=10)
        await fixture.advance(10)
        assert (await stats_of(store)).oldest_age == 11
        await store.settle([Retry((await take_one(store)).lease, delay=4)])
        assert (await stats_of(store)).oldest_age == 10
        await fixture.advance(4)
        assert (await stats_of(store)).oldest_age == 15
