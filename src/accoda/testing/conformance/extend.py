"""`extend`: a holder keeps its lease."""

from __future__ import annotations

from accoda.model import Lease, NewJob, Retry
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    close_to,
    finish,
    info_of,
    lost,
    need_exact,
    state_of,
    take_ids,
    take_one,
)
from accoda.testing.store_fixture import StoreFixture


class TestExtend(Suite):
    async def test_counts_from_now(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        await fixture.advance(6)
        assert await store.extend([job.lease], 10) == []
        assert close_to(fixture, (await info_of(store, id)).lease_until, await fixture.now() + 10_000)
        await fixture.advance(9)
        assert await take_ids(store) == []
        await finish(store, job)

    async def test_can_be_done_many_times(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        for _ in range(10):
            await fixture.advance(9)
            assert await store.extend([job.lease], 10) == []
        assert (await info_of(store, id)).attempts == 0
        await fixture.advance(10)
        assert (await take_one(store)).attempts == 1

    async def test_can_shorten_a_lease(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, NewJob(Q))
        job = await take_one(store, lease=HOUR)
        assert await store.extend([job.lease], 5) == []
        await fixture.advance(5)
        assert (await take_one(store)).id == id

    async def test_gives_back_the_lost_and_extends_the_others(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, NewJob(Q), NewJob(Q), NewJob(Q))
        one, two, three = await store.take(Q, 3, lease=10)
        await finish(store, one)
        await store.settle([Retry(two.lease)])
        at = three.lease.taken_at
        wrong = [Lease("other", three.id, 0, at), Lease(Q, three.id, 1, at), Lease(Q, 10**6, 0, at)]
        wrong += [Lease(Q, three.id, 0, moment) for moment in (at - 1, at + 1, 0)]
        assert await store.extend([one.lease, two.lease, three.lease, *wrong], 60) == lost(one.lease, two.lease, *wrong)
        await fixture.advance(30)
        assert await state_of(store, three.id) == "taken"

    async def test_of_the_same_lease_twice_is_accepted_twice(self, store: Store) -> None:
        await add_one(store, NewJob(Q))
        job = await take_one(store)
        assert await store.extend([job.lease, job.lease], 60) == []

    async def test_of_nothing_does_nothing(self, store: Store) -> None:
        assert await store.extend([], 60) == []

    async def test_at_the_last_millisecond_is_in_time(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        await add_one(store, NewJob(Q))
        job = await take_one(store, lease=10)
        await fixture.advance(9.999)
        assert await store.extend([job.lease], 10) == []
        await fixture.advance(10)
        assert await store.extend([job.lease], 10) == lost(job.lease)
