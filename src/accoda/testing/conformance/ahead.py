"""`look(ahead=True)`: how many jobs go before a job, and how many of them came later."""

from __future__ import annotations

import pytest

from accoda.model import AHEAD_AT_MOST, ENDED, STATES, ById, ByKey, Head, NewJob, Remove, Rerank, Retry, StartNow, State
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import HOUR, Q, Suite, add, add_one, info_of, one_in_each, take_ids, take_one
from accoda.testing.store_fixture import StoreFixture


async def ahead(store: Store, id: int) -> tuple[int | None, int]:
    """`ahead` and `newer` of a job."""
    seen = await store.look(ById(id), ahead=True)
    assert seen.job is not None, f"job {id} is gone"
    return seen.ahead, seen.newer


class TestAhead(Suite):
    @pytest.mark.parametrize("state", STATES)
    async def test_comes_with_the_job(self, store: Store, state: State) -> None:
        id = (await one_in_each(store))[state]
        assert (await store.look(ById(id), ahead=True)).job == await info_of(store, id)

    async def test_is_not_told_unless_asked_for(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q, rank=-1))
        seen = await store.look(ById(ids[0]))
        assert (seen.ahead, seen.newer) == (None, 0)

    async def test_is_told_of_ready_and_delayed_jobs_only(self, store: Store) -> None:
        ids = await one_in_each(store)
        await add(store, *(NewJob(Q, rank=-1) for _ in range(3)))
        for state in ("taken", *ENDED):
            assert await ahead(store, ids[state]) == (None, 0), state
        assert await ahead(store, ids["ready"]) == (3, 3)
        assert await ahead(store, ids["delayed"]) == (4, 3)

    async def test_is_told_by_key_and_at_the_head_too(self, store: Store) -> None:
        await add(store, NewJob(Q), NewJob(Q, key="k"), NewJob(Q))
        seen = await store.look(ByKey(Q, "k"), ahead=True)
        assert (seen.ahead, seen.newer) == (1, 0)
        seen = await store.look(Head(Q), ahead=True)
        assert (seen.ahead, seen.newer) == (0, 0)

    async def test_goes_by_rank_then_id_as_take_does(self, store: Store) -> None:
        ranks = [2, 1.5, 2, -3, 0, 2, 1e12, 0, -1e-9, 1.5]
        ids = await add(store, *(NewJob(Q, rank=rank) for rank in ranks))
        told = {id: await ahead(store, id) for id in ids}
        order = await take_ids(store)
        for place, id in enumerate(order):
            assert told[id] == (place, sum(other > id for other in order[:place]))

    async def test_counts_its_own_queue_only(self, store: Store) -> None:
        await add(store, *(NewJob(name, rank=-1) for name in (f"{Q}.x", "other", f"{Q}x") for _ in range(3)))
        first, second = await add(store, NewJob(Q), NewJob(Q))
        assert [await ahead(store, id) for id in (first, second)] == [(0, 0), (1, 0)]

    async def test_newer_are_those_that_came_later_and_go_first(self, store: Store) -> None:
        old = await add(store, NewJob(Q, rank=1), NewJob(Q, rank=5))
        await add(store, NewJob(Q, rank=4), NewJob(Q, rank=6), NewJob(Q, rank=1), NewJob(Q, rank=5))
        assert await ahead(store, old[1]) == (3, 2)
        assert await ahead(store, old[0]) == (0, 0)

    async def test_of_a_delayed_job_is_as_if_it_were_ready_now(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, rank=rank) for rank in (0, 1, 1, 2)))
        between = await add_one(store, NewJob(Q, rank=1, delay=HOUR))
        first = await add_one(store, NewJob(Q, rank=-1, delay=HOUR))
        await add(store, NewJob(Q, rank=1), NewJob(Q, rank=0))
        assert await ahead(store, between) == (4, 1)
        assert await ahead(store, first) == (0, 0)
        assert await ahead(store, ids[3]) == (5, 2), "delayed jobs do not count"

    async def test_of_a_rank_that_no_ready_job_has(self, store: Store) -> None:
        await add(store, NewJob(Q, rank=1), NewJob(Q, rank=3))
        ids = [await add_one(store, NewJob(Q, rank=rank, delay=HOUR)) for rank in (0, 2, 4)]
        assert [await ahead(store, id) for id in ids] == [(0, 0), (1, 0), (2, 0)]

    async def test_a_paused_queue_keeps_its_order(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q))
        await store.pause(Q, None)
        assert await ahead(store, ids[1]) == (1, 0)
        assert await store.take(Q, 1) == []

    async def test_changes_nothing(self, store: Store) -> None:
        ids = await add(store, NewJob(Q, rank=2), NewJob(Q, rank=1), NewJob(Q, delay=HOUR))
        before = [await info_of(store, id) for id in ids]
        for id in ids:
            assert await ahead(store, id) == await ahead(store, id)
        assert [await info_of(store, id) for id in ids] == before
        assert await take_ids(store) == [ids[1], ids[0]]

    async def test_follows_what_happens_to_the_line(self, store: Store) -> None:
        one, two, three, last = await add(store, *(NewJob(Q, rank=1) for _ in range(4)))
        await store.change([Rerank(three, 0), Rerank(one, 2), Rerank(one, 1)])
        assert await ahead(store, one) == (1, 1)
        await store.change([Remove(two)])
        assert await ahead(store, last) == (2, 0)
        job = await take_one(store)
        assert (job.id, await ahead(store, last)) == (three, (1, 0))
        await store.settle([Retry(job.lease)])
        assert await ahead(store, last) == (2, 0)
        assert await ahead(store, one) == (1, 1)


class TestAheadAndWhatIsDue(Suite):
    async def test_a_job_whose_time_has_come_is_ready(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, NewJob(Q), NewJob(Q))
        id = await add_one(store, NewJob(Q, delay=10))
        await fixture.advance(10)
        seen = await store.look(ById(id), ahead=True)
        assert seen.job is not None
        assert (seen.job.state, seen.ahead) == ("ready", 2)

    async def test_others_whose_time_has_come_go_first(self, store: Store, fixture: StoreFixture) -> None:
        await add(store, NewJob(Q, rank=-2))
        await take_one(store, lease=10)
        last = await add_one(store, NewJob(Q))
        await add(store, NewJob(Q, rank=-1, delay=10), NewJob(Q, rank=-1, delay=HOUR))
        assert await ahead(store, last) == (0, 0)
        await fixture.advance(10)
        assert await ahead(store, last) == (2, 1)

    async def test_a_job_whose_lease_ended_goes_before_one_that_was_started(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        started = await add_one(store, NewJob(Q))
        assert await store.settle([Retry((await take_one(store)).lease, delay=HOUR)]) == []
        assert await store.change([StartNow(started)]) == 1
        taken = await add_one(store, NewJob(Q, rank=-1))
        assert (await take_one(store, lease=10)).id == taken
        await fixture.advance(10)
        seen = await store.look(ById(taken), ahead=True)
        assert seen.job is not None
        assert (seen.job.state, seen.job.attempts, seen.ahead) == ("ready", 1, 0)
        assert await ahead(store, started) == (1, 1)


class TestAheadInALongLine(Suite):
    limit = 60.0

    async def test_is_exact_up_to_ten_thousand_and_more_beyond(self, store: Store) -> None:
        """The line: old jobs at rank 1, half as many newer ones that go first, and more newer ones at the end."""
        half = AHEAD_AT_MOST // 2
        old = await self.fill(store, half, 1.0)
        first = await self.fill(store, half, 0.0)
        last = await self.fill(store, 3, 2.0)
        order = [*first, *old, *last]
        for place in (0, half - 1, half, 2 * half - 1, 2 * half):
            newer = sum(id > order[place] for id in order[:place])
            assert await ahead(store, order[place]) == (place, newer)
        for id in last[1:]:
            assert await ahead(store, id) == (AHEAD_AT_MOST + 1, 0), "more than are counted"
        await store.change([Rerank(old[-1], 3.0)])
        assert await ahead(store, old[-1]) == (AHEAD_AT_MOST + 1, half + 1), "newer among the first ten thousand"

    async def fill(self, store: Store, count: int, rank: float) -> list[int]:
        size = 1000
        return [
            id
            for begin in range(0, count, size)
            for id in await add(store, *[NewJob(Q, rank=rank)] * min(size, count - begin))
        ]
