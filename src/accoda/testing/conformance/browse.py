"""`browse`: the jobs of a state, page by page, in the order of the line or by id."""

from __future__ import annotations

import pytest

from accoda.model import STATES, Bury, Cancel, Cursor, Done, JobInfo, Lanes, NewJob, Order, Remove, Rerank, State
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    WAITING,
    Q,
    Suite,
    add,
    add_one,
    info_of,
    one_in_each,
    take_ids,
    take_one,
)
from accoda.testing.store_fixture import StoreFixture

ORDERS: list[Order] = ["line", "id"]


async def pages(store: Store, state: State, order: Order, limit: int) -> list[JobInfo]:
    """All jobs of a state, read page by page."""
    jobs: list[JobInfo] = []
    page = await store.browse(Q, state, order=order, limit=limit)
    while page:
        jobs += page
        assert len(page) <= limit
        assert len(jobs) <= 100, "the pages do not end"
        page = await store.browse(Q, state, order=order, after=page[-1].cursor(order), limit=limit)
    return jobs


async def in_line(store: Store, fixture: StoreFixture, state: State) -> list[int]:
    """Eleven jobs in a state, with neighbours that are equal in what orders them; their ids as the line has them."""
    sorts = [3, 1, 2, 2, 0, 5, 1, 1, 4, 2, 0]
    if state in WAITING:
        await store.set_lanes(Q, Lanes(limits={"full": 0}))
        lane, late = "full" if state == "held" else None, state == "delayed"
        jobs = [NewJob(Q, rank=-n if late else n - 1.5, delay=60 + n if late else None, lane=lane) for n in sorts]
        ids = await add(store, *jobs)
        return [id for _, id in sorted(zip(sorts, ids, strict=True))]
    ids = await add(store, *(NewJob(Q, keep_for=HOUR) for _ in sorts))
    jobs_taken = await store.take(Q, len(ids), lease=HOUR)
    if state == "taken":
        for job, n in zip(jobs_taken, sorts, strict=True):
            await store.extend([job.lease], 60 + n)
        return [id for _, id in sorted(zip(sorts, ids, strict=True))]
    for moment in sorted(set(sorts)):
        ending = [job for job, n in zip(jobs_taken, sorts, strict=True) if n == moment]
        if state == "cancelled":
            await store.change([Cancel(job.id) for job in ending])
        else:
            await store.settle([Done(job.lease) if state == "done" else Bury(job.lease, "x") for job in ending])
        await fixture.advance(1)
    return [id for _, id in sorted(zip(sorts, ids, strict=True), reverse=True)]


class TestBrowse(Suite):
    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize("state", STATES)
    async def test_shows_what_look_shows(self, store: Store, state: State, order: Order) -> None:
        ids = await one_in_each(store)
        assert await store.browse(Q, state, order=order) == [await info_of(store, ids[state])]
        assert await store.browse("other", state, order=order) == []

    @pytest.mark.parametrize("order", ORDERS)
    async def test_of_a_page_without_room_is_empty(self, store: Store, order: Order) -> None:
        await add_one(store, NewJob(Q))
        assert await store.browse(Q, "ready", order=order, limit=0) == []

    async def test_shows_a_hundred_in_the_order_of_the_line_unless_told(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, rank=-n) for n in range(120)))
        assert [info.id for info in await store.browse(Q, "ready")] == ids[:-101:-1]

    @pytest.mark.parametrize("order", ORDERS)
    async def test_changes_nothing(self, store: Store, order: Order) -> None:
        ids = await add(store, NewJob(Q, rank=1), NewJob(Q))
        assert await store.browse(Q, "ready", order=order) == await store.browse(Q, "ready", order=order)
        assert await take_ids(store) == ids[::-1]

    @pytest.mark.parametrize("order", ORDERS)
    async def test_shows_what_is_due_as_done(self, store: Store, fixture: StoreFixture, order: Order) -> None:
        taken, delayed = await add(store, NewJob(Q), NewJob(Q, delay=5))
        await take_one(store, lease=5)
        await fixture.advance(5)
        assert [info.id for info in await store.browse(Q, "ready", order=order)] == [taken, delayed]
        assert await store.browse(Q, "taken", order=order) == await store.browse(Q, "delayed", order=order) == []


class TestBrowseById(Suite):
    @pytest.mark.parametrize("state", STATES)
    async def test_goes_by_id_whatever_the_line_is(self, store: Store, fixture: StoreFixture, state: State) -> None:
        ids = sorted(await in_line(store, fixture, state))
        for limit in (1, 4, 100):
            assert [info.id for info in await pages(store, state, "id", limit)] == ids

    async def test_begins_after_any_id(self, store: Store) -> None:
        first, second, third = await add(store, NewJob(Q), NewJob(Q, rank=-1), NewJob(Q))
        await store.change([Remove(second)])
        for after, expected in ((second, [third]), (0, [first, third]), (third, [])):
            page = await store.browse(Q, "ready", order="id", after=Cursor(0.0, after))
            assert [info.id for info in page] == expected

    async def test_a_walk_sees_jobs_that_move_in_the_line(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, rank=n) for n in range(6)))
        page = await store.browse(Q, "ready", order="id", limit=3)
        await store.change([Rerank(id, -id) for id in ids])
        rest = await store.browse(Q, "ready", order="id", after=page[-1].cursor("id"))
        assert [info.id for info in [*page, *rest]] == ids


class TestBrowseInLine(Suite):
    @pytest.mark.parametrize("state", STATES)
    async def test_goes_by_what_orders_the_state_then_by_id(
        self, store: Store, fixture: StoreFixture, state: State
    ) -> None:
        ids = await in_line(store, fixture, state)
        assert [info.id for info in await store.browse(Q, state)] == ids

    @pytest.mark.parametrize("limit", [1, 2, 4, 11, 100])
    @pytest.mark.parametrize("state", STATES)
    async def test_page_by_page_shows_each_job_once(
        self, store: Store, fixture: StoreFixture, state: State, limit: int
    ) -> None:
        ids = await in_line(store, fixture, state)
        assert [info.id for info in await pages(store, state, "line", limit)] == ids

    async def test_shows_ready_jobs_as_take_hands_them_out(self, store: Store) -> None:
        ranks = [2, -1e300, 0.5, -0.0, 1e300, 0, 2, 5e-324, -1]
        await add(store, *(NewJob(Q, rank=rank) for rank in ranks))
        shown = [info.id for info in await pages(store, "ready", "line", 2)]
        assert shown == await take_ids(store)

    async def test_follows_a_new_rank(self, store: Store) -> None:
        first, second, third = await add(store, NewJob(Q), NewJob(Q), NewJob(Q))
        await store.change([Rerank(third, -1), Rerank(first, 1)])
        assert [info.id for info in await store.browse(Q, "ready")] == [third, second, first]

    async def test_shows_a_paused_queue(self, store: Store) -> None:
        ids = await add(store, NewJob(Q, rank=1), NewJob(Q))
        await store.pause(Q, None)
        assert [info.id for info in await store.browse(Q, "ready")] == ids[::-1]

    async def test_begins_after_a_job_that_has_gone(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, rank=-n) for n in range(5)))
        page = await store.browse(Q, "ready", limit=2)
        await store.change([Remove(page[-1].id)])
        rest = await store.browse(Q, "ready", after=page[-1].cursor())
        assert [info.id for info in rest] == ids[2::-1]

    async def test_follows_an_extended_lease(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q), NewJob(Q))
        jobs = await store.take(Q, 3, lease=60)
        await store.extend([jobs[0].lease], 90)
        await store.extend([jobs[2].lease], 30)
        assert [info.id for info in await store.browse(Q, "taken")] == [ids[2], ids[1], ids[0]]
