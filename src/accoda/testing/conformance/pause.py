"""`pause` and `resume`."""

from __future__ import annotations

import pytest

from accoda.model import Done, NewJob, Rerank, Retry
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
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture


class TestPause(Suite):
    async def test_a_paused_queue_gives_nothing_until_it_is_resumed(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        await store.pause(Q, None)
        assert await take_ids(store) == []
        await fixture.advance(1_000_000)
        assert await take_ids(store) == []
        await store.pause(Q, 0)
        assert await take_ids(store) == [id]

    async def test_a_pause_with_an_end_ends_by_itself(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        until = await fixture.now() + 30_000
        await store.pause(Q, until)
        stats = await stats_of(store)
        assert (stats.paused, stats.paused_until, stats.ready) == (True, until, 1)
        await fixture.advance(29)
        assert await take_ids(store) == []
        await fixture.advance(1)
        stats = await stats_of(store)
        assert (stats.paused, stats.paused_until) == (False, None)
        assert await take_ids(store) == [id]

    async def test_it_ends_at_the_exact_millisecond(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        id = await add_one(store, NewJob(Q))
        await store.pause(Q, await fixture.now() + 2)
        await fixture.advance(0.001)
        assert await take_ids(store) == []
        await fixture.advance(0.001)
        assert await take_ids(store) == [id]

    @pytest.mark.parametrize("ago", [0, 1, 5_000, None])
    async def test_until_a_moment_that_has_gone_is_none(
        self, store: Store, fixture: StoreFixture, ago: int | None
    ) -> None:
        id = await add_one(store, NewJob(Q))
        await store.pause(Q, 0 if ago is None else await fixture.now() - ago)
        stats = await stats_of(store)
        assert (stats.paused, stats.paused_until) == (False, None)
        assert await take_ids(store) == [id]

    @pytest.mark.parametrize("end", [None, 3600_000])
    async def test_until_a_moment_that_has_gone_resumes(
        self, store: Store, fixture: StoreFixture, end: int | None
    ) -> None:
        id = await add_one(store, NewJob(Q))
        await store.pause(Q, None if end is None else await fixture.now() + end)
        assert (await stats_of(store)).paused
        await store.pause(Q, await fixture.now() - 1)
        stats = await stats_of(store)
        assert (stats.paused, stats.paused_until) == (False, None)
        assert await take_ids(store) == [id]

    async def test_the_last_pause_counts(self, store: Store, fixture: StoreFixture) -> None:
        await add_one(store, NewJob(Q))
        await store.pause(Q, await fixture.now() + 5_000)
        await store.pause(Q, None)
        await fixture.advance(10)
        stats = await stats_of(store)
        assert (stats.paused, stats.paused_until) == (True, None)
        await store.pause(Q, await fixture.now() + 5_000)
        await fixture.advance(5)
        assert len(await take_ids(store)) == 1

    async def test_other_queues_go_on(self, store: Store) -> None:
        await store.pause("a", None)
        (id,) = await add(store, NewJob("a.b"))
        assert await take_ids(store, "a.b") == [id]

    async def test_a_queue_can_be_paused_before_its_first_job(self, store: Store) -> None:
        await store.pause(Q, None)
        id = await add_one(store, NewJob(Q))
        assert await take_ids(store) == []
        assert (await stats_of(store)).paused
        await store.pause(Q, 0)
        assert await take_ids(store) == [id]

    async def test_resuming_what_is_not_paused_does_no_harm(self, store: Store) -> None:
        await store.pause(Q, 0)
        await store.pause("never-used", 0)
        id = await add_one(store, NewJob(Q))
        assert await take_ids(store) == [id]

    async def test_running_jobs_go_on(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, NewJob(Q, key="k", waiter=b"w"), NewJob(Q), NewJob(Q))
        one, two, three = await store.take(Q, 3, lease=10)
        await store.pause(Q, None)
        assert await store.extend([one.lease], 60) == []
        assert await waiters_of(store, one.lease) == [b"w"]
        assert await store.settle([Done(one.lease), Retry(two.lease)]) == []
        await fixture.advance(10)
        assert [await state_of(store, job.id) for job in (one, two, three)] == ["gone", "ready", "ready"]

    async def test_a_paused_queue_still_takes_in_jobs_and_ranks(self, store: Store, fixture: StoreFixture) -> None:
        await store.pause(Q, None)
        first, second = await add(store, NewJob(Q), NewJob(Q, delay=5))
        assert await store.change([Rerank(second, -1)]) == 1
        await fixture.advance(5)
        assert (await info_of(store, second)).state == "ready"
        await store.pause(Q, 0)
        assert await take_ids(store) == [second, first]
