"""`place`: where a job stands in the line of its queue, exactly near its two ends, about so in between."""

from __future__ import annotations

from random import Random

import pytest

from accoda.model import STATES, NewJob, Place, Rank, Retry, State
from accoda.storage.protocol import DUE_AT_ONCE, Store
from accoda.testing.conformance.base import HOUR, Q, Suite, add, add_one, close_to, info_of, take_ids, take_one
from accoda.testing.conformance.inspector import one_in_each
from accoda.testing.world import World

SHAPES = ("levels", "one-rank", "aging")


async def place_of(store: Store, id: int, most: int = 1000) -> Place:
    """The place of a job, which must exist."""
    place = await store.place(id, most)
    assert place is not None, f"job {id} is gone"
    return place


async def stand(store: Store, id: int, most: int = 1000) -> tuple[int, int, bool]:
    place = await place_of(store, id, most)
    return place.ahead, place.newer, place.exact


class TestPlace(Suite):
    async def test_of_an_id_that_nobody_has_is_none(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q))
        for other in (id + 1, 0, (1 << 53) - 1, (1 << 63) - 1):
            assert await store.place(other) is None

    @pytest.mark.parametrize("state", STATES)
    async def test_tells_what_find_tells_and_the_moment(self, store: Store, world: World, state: State) -> None:
        id = (await one_in_each(store))[state]
        place = await place_of(store, id)
        assert close_to(world, place.at, await world.now())
        assert place.job == await info_of(store, id)
        assert (place.job.state, place.exact) == (state, True)

    async def test_counts_none_for_a_job_that_does_not_wait(self, store: Store) -> None:
        ids = await one_in_each(store)
        await add(store, *(NewJob(Q, rank=-1) for _ in range(3)))
        for state in ("taken", "dead", "done"):
            assert await stand(store, ids[state]) == (0, 0, True), state
        assert await stand(store, ids["ready"]) == (3, 3, True)
        assert await stand(store, ids["delayed"]) == (4, 3, True)

    async def test_goes_by_rank_then_id_as_take_does(self, store: Store) -> None:
        ranks = [2, 1.5, 2, -3, 0, 2, 1e12, 0, -1e-9, 1.5]
        ids = await add(store, *(NewJob(Q, rank=rank) for rank in ranks))
        places = {id: await stand(store, id) for id in ids}
        order = await take_ids(store)
        for ahead, id in enumerate(order):
            assert places[id] == (ahead, sum(other > id for other in order[:ahead]), True)

    async def test_counts_its_own_queue_only(self, store: Store) -> None:
        await add(store, *(NewJob(name, rank=-1) for name in (f"{Q}.x", "other", f"{Q}x") for _ in range(3)))
        first, second = await add(store, NewJob(Q), NewJob(Q))
        assert [await stand(store, id) for id in (first, second)] == [(0, 0, True), (1, 0, True)]

    async def test_newer_are_those_that_came_later_and_stand_before_it(self, store: Store) -> None:
        old = await add(store, NewJob(Q, rank=1), NewJob(Q, rank=5))
        await add(store, NewJob(Q, rank=4), NewJob(Q, rank=6), NewJob(Q, rank=1), NewJob(Q, rank=5))
        assert await stand(store, old[1]) == (3, 2, True)
        assert await stand(store, old[0]) == (0, 0, True)

    async def test_of_a_delayed_job_is_where_it_would_stand_by_now(self, store: Store) -> None:
        ids = await add(store, *(NewJob(Q, rank=rank) for rank in (0, 1, 1, 2)))
        between = await add_one(store, NewJob(Q, rank=1, delay=HOUR))
        first = await add_one(store, NewJob(Q, rank=-1, delay=HOUR))
        await add(store, NewJob(Q, rank=1), NewJob(Q, rank=0))
        assert await stand(store, between) == (4, 1, True)
        assert await stand(store, first) == (0, 0, True)
        assert await stand(store, ids[3]) == (5, 2, True), "those that are delayed stand in nobody's way"

    async def test_of_a_rank_that_no_ready_job_has(self, store: Store) -> None:
        await add(store, NewJob(Q, rank=1), NewJob(Q, rank=3))
        ids = [await add_one(store, NewJob(Q, rank=rank, delay=HOUR)) for rank in (0, 2, 4)]
        assert [await stand(store, id) for id in ids] == [(0, 0, True), (1, 0, True), (2, 0, True)]

    async def test_a_paused_queue_keeps_its_order(self, store: Store) -> None:
        ids = await add(store, NewJob(Q), NewJob(Q))
        await store.pause(Q)
        assert await stand(store, ids[1]) == (1, 0, True)
        assert await store.take(Q, 1) == []

    async def test_changes_nothing(self, store: Store) -> None:
        ids = await add(store, NewJob(Q, rank=2), NewJob(Q, rank=1), NewJob(Q, delay=HOUR))
        before = [await info_of(store, id) for id in ids]
        for id in ids:
            assert (await place_of(store, id)).ahead == (await place_of(store, id)).ahead
        assert [await info_of(store, id) for id in ids] == before
        assert await take_ids(store) == [ids[1], ids[0]]

    async def test_follows_what_happens_to_the_line(self, store: Store) -> None:
        one, two, three, last = await add(store, *(NewJob(Q, rank=1) for _ in range(4)))
        await store.rerank([Rank(Q, three, 0), Rank(Q, one, 2), Rank(Q, one, 1)])
        assert await stand(store, one) == (1, 1, True)
        await store.remove([two])
        assert await stand(store, last) == (2, 0, True)
        job = await take_one(store)
        assert (job.id, await stand(store, last)) == (three, (1, 0, True))
        await store.settle([Retry(job.lease)])
        assert await stand(store, last) == (2, 0, True)
        assert await stand(store, one) == (1, 1, True)


class TestPlaceAndWhatIsDue(Suite):
    async def test_a_job_whose_time_has_come_is_ready(self, store: Store, world: World) -> None:
        await add(store, NewJob(Q), NewJob(Q))
        id = await add_one(store, NewJob(Q, delay=10))
        await world.advance(10)
        place = await place_of(store, id)
        assert (place.job.state, place.ahead) == ("ready", 2)

    async def test_others_whose_time_has_come_stand_before_it(self, store: Store, world: World) -> None:
        await add(store, NewJob(Q, rank=-2))
        await take_one(store, lease=10)
        last = await add_one(store, NewJob(Q))
        await add(store, NewJob(Q, rank=-1, delay=10), NewJob(Q, rank=-1, delay=HOUR))
        assert await stand(store, last) == (0, 0, True)
        await world.advance(10)
        assert await stand(store, last) == (2, 1, True)

    async def test_a_lease_that_ended_and_a_result_that_was_kept(self, store: Store, world: World) -> None:
        kept = await add_one(store, NewJob(Q, keep_for=10))
        assert await store.settle([Retry((await take_one(store)).lease, delay=HOUR)]) == []
        assert await store.start_now([kept]) == 1
        taken = await add_one(store, NewJob(Q, rank=-1))
        assert (await take_one(store, lease=10)).id == taken
        await world.advance(10)
        place = await place_of(store, taken)
        assert (place.job.state, place.job.attempts, place.ahead) == ("ready", 1, 0)
        assert await stand(store, kept) == (1, 1, True)

    async def test_is_up_to_date_however_much_else_is_due(self, store: Store, world: World) -> None:
        ids = await add(store, *(NewJob(Q, rank=n, delay=10) for n in range(DUE_AT_ONCE + 200)))
        await world.advance(10)
        place = await place_of(store, ids[-1])
        assert place.job.state == "ready"


class TestPlaceNearTheEnds(Suite):
    """Lines of 300 jobs, of which a look counts 20."""

    @pytest.mark.parametrize("shape", SHAPES)
    async def test_is_exact_where_at_most_so_many_are_ahead_or_behind(self, store: Store, shape: str) -> None:
        line = await add_line(store, shape, 300)
        for ahead in (0, 1, 19, 20, 279, 280, 298, 299):
            id = line[ahead]
            place = await place_of(store, id, 20)
            assert (place.ahead, place.exact) == (ahead, True)
            if ahead <= 20:
                assert place.newer == sum(other > id for other in line[:ahead])
        for ahead in (21, 150, 278):
            check_estimate(await place_of(store, line[ahead], 20), ahead, 300, 20)

    async def test_of_a_delayed_job_too(self, store: Store) -> None:
        line = await add_line(store, "levels", 300)
        first, last = await add(store, NewJob(Q, rank=-1, delay=HOUR), NewJob(Q, rank=99, delay=HOUR))
        assert await stand(store, first, 20) == (0, 0, True)
        place = await place_of(store, last, 20)
        assert (place.ahead, place.exact) == (len(line), True)

    async def test_one_is_the_least_that_can_be_counted(self, store: Store) -> None:
        line = await add_line(store, "one-rank", 5)
        assert [(await place_of(store, line[ahead], 1)).ahead for ahead in (0, 1, 3, 4)] == [0, 1, 3, 4]


class TestPlaceInALongLine(Suite):
    limit = 60.0

    async def test_is_about_right_in_between_and_says_so(self, store: Store) -> None:
        lines = await add_lines(store, 7000)
        for line in lines.values():
            for ahead in (700, 1750, 3500, 5250, 6300):
                id = line[ahead]
                place = await place_of(store, id, 100)
                check_estimate(place, ahead, 7000, 100)
                newer = sum(other > id for other in line[:ahead])
                assert abs(place.newer - newer) <= 700, (newer, place)
            for ahead in (0, 100, 6899, 6999):
                place = await place_of(store, line[ahead], 100)
                assert abs(place.ahead - ahead) <= (0 if place.exact else 70), (ahead, place)


def check_estimate(place: Place, ahead: int, ready: int, most: int) -> None:
    """What says that it is exact is so; what does not is near, and leaves room for those known to be on either side."""
    if place.exact:
        assert place.ahead == ahead
    else:
        assert most < place.ahead and place.ahead + 1 <= ready
        assert abs(place.ahead - ahead) <= max(0.1 * ahead, 5), (ahead, place)
    assert 0 <= place.newer <= place.ahead


async def add_line(store: Store, shape: str, size: int) -> list[int]:
    """Ready jobs of the queue Q; their ids in the order of the line."""
    jobs = [NewJob(Q, rank=rank) for rank in _ranks(shape, size)]
    return _in_order(jobs, await add(store, *jobs))


async def add_lines(store: Store, size: int) -> dict[str, list[int]]:
    """A long queue of each shape, enqueued among each other, so that there are gaps between their ids."""
    rng = Random(7)
    jobs = [NewJob(f"{Q}.{shape}", rank=rank) for shape in SHAPES for rank in _ranks(shape, size)]
    turns = sorted(range(len(jobs)), key=lambda n: n % size + rng.random() * 20)  # those of a queue stay in their order
    jobs = [jobs[n] for n in turns]
    ids = [id for n in range(0, len(jobs), 1000) for id in await add(store, *jobs[n : n + 1000])]
    pairs = list(zip(jobs, ids, strict=True))
    return {
        shape: _in_order(*map(list, zip(*(pair for pair in pairs if pair[0].queue == f"{Q}.{shape}"), strict=True)))
        for shape in SHAPES
    }


def _ranks(shape: str, size: int) -> list[float]:
    rng = Random(11)
    if shape == "levels":
        return [float(rng.choice((0, 1, 2, 2, 2, 3))) for _ in range(size)]
    if shape == "one-rank":
        return [5.0] * size
    # Grown with time, up to four levels apart; some came in the same millisecond.
    return [1.7e12 + n // 3 * 40 + rng.randrange(4) * 10_000 for n in range(size)]


def _in_order(jobs: list[NewJob], ids: list[int]) -> list[int]:
    return [id for _, id in sorted((job.rank, id) for job, id in zip(jobs, ids, strict=True))]
