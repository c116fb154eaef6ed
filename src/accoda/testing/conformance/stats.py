"""`stats`: every job is in exactly one count, and every event is counted once."""

from __future__ import annotations

from typing import cast

import pytest

from accoda.model import (
    Bury,
    ById,
    Cancel,
    Change,
    Done,
    NewJob,
    OnDuplicate,
    Outcome,
    QueueStats,
    Remove,
    Retry,
    Revive,
    StartNow,
)
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
        assert (stats.done, stats.retried, stats.buried, stats.expired, stats.promoted) == (6, 8, 4, 12, 16)
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


class TestPromoted(Suite):
    async def test_counts_delayed_jobs_that_became_ready_by_their_time(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        await add(
            store, NewJob(Q), NewJob(Q, delay=5), NewJob(Q, delay=5), NewJob(Q, delay=9), NewJob("other", delay=5)
        )
        assert (await stats_of(store)).promoted == 0
        await fixture.advance(5)
        assert (await stats_of(store)).promoted == 2
        assert (await stats_of(store)).promoted == 2, "each is counted once"
        await fixture.advance(4)
        assert len(await store.take(Q, 9)) == 4
        assert (await stats_of(store)).promoted == 3
        assert (await stats_of(store, "other")).promoted == 1

    async def test_counts_a_retry_with_a_delay_and_not_one_without(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        await store.settle([Retry((await take_one(store)).lease)])
        await store.settle([Retry((await take_one(store)).lease, delay=7)])
        assert (await stats_of(store)).promoted == 0
        await fixture.advance(7)
        await take_one(store)
        assert (await stats_of(store)).promoted == 1

    async def test_does_not_count_what_was_started_or_ended_before_its_time(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        started, removed, cancelled, _ = await add(
            store, *(NewJob(Q, delay=5) for _ in range(3)), NewJob(Q, key="k", delay=5)
        )
        changes: list[Change] = [StartNow(started), Remove(removed), Cancel(cancelled)]
        assert await store.change(changes) == 3
        await store.enqueue([NewJob(Q, key="k", on_duplicate="replace")])
        await fixture.advance(5)
        stats = await stats_of(store)
        assert (stats.ready, stats.promoted) == (2, 0)

    @pytest.mark.parametrize("way", ["keep", "rerank", "replace", "remove", "start now", "look"])
    async def test_counts_a_job_that_a_call_names_after_its_time(
        self, store: Store, fixture: StoreFixture, way: str
    ) -> None:
        id = await add_one(store, NewJob(Q, key="k", delay=5))
        await fixture.advance(5)
        if way in ("keep", "rerank", "replace"):
            await store.enqueue([NewJob(Q, key="k", delay=60, on_duplicate=cast(OnDuplicate, way))])
        elif way == "look":
            await store.look(ById(id))
        else:
            await store.change([Remove(id) if way == "remove" else StartNow(id)])
        assert (await stats_of(store)).promoted == 1


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
