"""What lanes promise as a whole, on every storage: fair shares, nothing starves, nothing is held without need."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import count
from random import Random

import pytest
import pytest_asyncio
from proof.servers.pytest import KINDS, store_of

from accoda import Cancel, Done, Job, Lanes, NewJob, Rerank, Retry, Store, open_storage
from accoda.model import State

_numbers = count(1)
FAIR = Lanes(fair=True)


@pytest.fixture(scope="module", params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with store_of(request.param, tmp_path_factory.mktemp("lanes")) as url:
        yield f"{url}?durability=fast" if request.param == "sqlite" else url


@pytest_asyncio.fixture
async def store(address: str) -> AsyncIterator[Store]:
    async with await open_storage(address) as opened:
        yield opened


@pytest.fixture
def queue() -> str:
    """One that no other test uses."""
    return f"q{next(_numbers)}"


async def starts(store: Store, queue: str, most: int, batch: int = 1) -> list[Job]:
    """The jobs in the order in which they start; each batch is done before the next is taken."""
    started: list[Job] = []
    while len(started) < most and (jobs := await store.take(queue, min(batch, most - len(started)))):
        started += jobs
        assert await store.settle([Done(job.lease) for job in jobs]) == []
    return started


class TestShares:
    """Of two lanes that always have jobs in the line, neither gets ahead of the other by more than one job of each."""

    @pytest.mark.parametrize("seed", range(6))
    async def test_differ_by_no_more_than_the_largest_jobs(self, store: Store, queue: str, seed: int) -> None:
        random = Random(seed)
        names = [f"c{number}" for number in range(random.choice((2, 3, 5)))]
        weights = {name: random.choice((0.25, 1, 1, 2, 7.5)) for name in names}
        by_cost = random.random() < 0.5
        rules = Lanes(limit=random.choice((None, 3)), fair=True, weights=weights, by_cost=by_cost)
        await store.set_lanes(queue, rules)
        costs = {name: random.choice((1, 3, 20)) for name in names}  # at the most

        def draw(name: str) -> NewJob:
            return NewJob(queue, rank=1.0 + random.random(), cost=random.randrange(costs[name] + 1), lane=name)

        await store.enqueue([draw(name) for name in names for _ in range(40)])
        served, spread = dict.fromkeys(names, 0.0), Spread()
        for _ in range(120):
            (job,) = await store.take(queue, 1)
            lane = job.lane or ""
            served[lane] += ((job.cost or 1) if by_cost else 1) / weights[lane]
            spread.add(served)
            assert await store.settle([Done(job.lease, then=[draw(lane)])]) == []
        for one in names:
            for other in names:
                largest = [(costs[name] if by_cost else 1) / weights[name] for name in (one, other)]
                assert one == other or spread.of(one, other) <= sum(largest) * 1.001, (one, other, rules)

    async def test_hold_within_each_level(self, store: Store, queue: str) -> None:
        await store.set_lanes(queue, Lanes(fair=True, weights={"a": 3}))
        jobs = [NewJob(queue, rank=float(rank), lane=lane) for rank in (2, 0, 1) for lane in "ab" for _ in range(40)]
        await store.enqueue(jobs)
        started = await starts(store, queue, 240)
        assert [job.rank for job in started] == sorted(job.rank for job in started)
        for level in range(3):
            first = started[80 * level : 80 * level + 40]
            assert abs(Counter(job.lane for job in first)["a"] - 30) <= 2


class Spread:
    """How far one lane got ahead of another between any two moments."""

    def __init__(self) -> None:
        self._low: dict[tuple[str, str], float] = {}
        self._most: dict[tuple[str, str], float] = {}

    def add(self, served: dict[str, float]) -> None:
        for one, of_one in served.items():
            for other, of_other in served.items():
                ahead, pair = of_one - of_other, (one, other)
                low = self._low[pair] = min(self._low.get(pair, 0.0), ahead)
                self._most[pair] = max(self._most.get(pair, 0.0), ahead - low)

    def of(self, one: str, other: str) -> float:
        return self._most[one, other]


class TestManyJobsOfOne:
    @pytest.mark.parametrize("takers", [1, 4])
    @pytest.mark.parametrize("limit", [None, 8])
    async def test_delay_each_other_customer_by_a_turn(
        self, store: Store, queue: str, takers: int, limit: int | None
    ) -> None:
        await store.set_lanes(queue, Lanes(limit=limit, fair=True))
        for _ in range(10):
            await store.enqueue([NewJob(queue, lane="whale")] * 1000)
        await starts(store, queue, 20)  # it has been served for a while
        await store.enqueue([NewJob(queue, lane=f"c{number}") for number in range(50)])
        order: list[str | None] = []

        async def work() -> None:
            while len(order) < 60:
                jobs = await store.take(queue, 2)
                order.extend(job.lane for job in jobs)
                assert await store.settle([Done(job.lease) for job in jobs]) == []

        await asyncio.gather(*(work() for _ in range(takers)))
        assert len(set(order[:60]) - {"whale"}) == 50
        await store.set_lanes(queue, None)
        await store.purge(queue, "ready")


class TestStarvation:
    async def test_there_is_none_however_much_comes_in(self, store: Store, queue: str) -> None:
        """Three lanes get more jobs than are started, and one has a job that fails at once, again and again."""
        await store.set_lanes(queue, FAIR)
        small = [NewJob(queue, b"small", lane="small") for _ in range(5)]
        flood = [NewJob(queue, lane=f"flood{number}") for number in range(3)]
        await store.enqueue([*flood * 20, NewJob(queue, b"fails", lane="fails"), *small])
        left, started = len(small), 0
        while left:
            (job,) = await store.take(queue, 1)
            started += 1
            left -= job.data == b"small"
            assert started <= 5 * (len(small) + 1)  # a turn of each lane for each of them
            assert await store.settle([Retry(job.lease) if job.data == b"fails" else Done(job.lease)]) == []
            await store.enqueue(flood)


class TestHeld:
    @pytest.mark.parametrize("seed", range(3))
    async def test_a_job_is_held_only_while_its_lane_is_full_of_better_ones(
        self, store: Store, queue: str, seed: int
    ) -> None:
        random, leases = Random(seed), list[Job]()
        rules = Lanes(limit=2, fair=True)
        await store.set_lanes(queue, rules)
        for _ in range(60):
            kind = random.randrange(8)
            if kind < 3:
                await store.enqueue([draw(queue, random) for _ in range(random.randrange(1, 5))])
            elif kind == 3:
                leases += await store.take(queue, random.randrange(1, 5))
            elif kind == 4:
                await store.take(queue, 2, lease=0.005)
                await asyncio.sleep(0.02)  # they have come back when it is looked
            elif kind == 5:
                random.shuffle(leases)
                ended, leases = leases[:2], leases[2:]
                ways = random.choice((Done, Retry))
                assert await store.settle([ways(job.lease) for job in ended]) == []
            elif kind == 6:
                waiting = await store.browse(queue, random.choice(("ready", "held")), limit=2)
                ways_of = random.choice((Cancel, lambda id: Rerank(id, float(random.randrange(3)))))
                await store.change([ways_of(info.id) for info in waiting])
            else:
                rules = Lanes(limit=random.choice((1, 2, 4)), limits={"a": random.choice((0, 3, None))}, fair=True)
                await store.set_lanes(queue, rules)
            await assert_balanced(store, queue, rules)


def draw(queue: str, random: Random) -> NewJob:
    return NewJob(queue, rank=float(random.randrange(3)), lane=random.choice((None, "a", "b", "c")))


async def assert_balanced(store: Store, queue: str, rules: Lanes) -> None:
    """Of each lane, the best jobs are ready, as many as there is room for, and the others held."""
    states: tuple[State, ...] = ("ready", "held")
    waiting = [info for state in states for info in await store.browse(queue, state, limit=1000)]
    for lane in (await store.lanes(queue)).lanes:
        of_lane = sorted((info.rank, info.id, info.state) for info in waiting if info.lane == lane.lane)
        limit = rules.limit_of(lane.lane)
        room = len(of_lane) if limit is None else max(0, limit - lane.taken)
        expected = ["ready"] * min(room, len(of_lane)) + ["held"] * (len(of_lane) - room)
        assert [state for *_, state in of_lane] == expected, lane
        assert (lane.ready, lane.held) == (expected.count("ready"), expected.count("held"))


TAKER = """
import asyncio, sys
from accoda import open_storage
async def main():
    async with await open_storage(sys.argv[1]) as store:
        print(len(await store.take(sys.argv[2], 10, lease=0.8)), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_a_process_that_is_killed_gives_its_places_back_when_its_leases_end(
    address: str, store: Store, queue: str
) -> None:
    if address.startswith("memory"):
        pytest.skip("this store is in one process")
    await store.set_lanes(queue, Lanes(limit=2, total=3))
    await store.enqueue([NewJob(queue, lane=lane) for lane in "aaaabb"])
    with subprocess.Popen([sys.executable, "-c", TAKER, address, queue], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"3\n"
        process.send_signal(signal.SIGKILL)
    assert await store.take(queue, 10) == []
    assert await store.wait([queue], 10.0)
    jobs: list[Job] = []
    while len(jobs) < 3:
        assert await store.wait([queue], 10.0)
        jobs += await store.take(queue, 10)
    assert Counter(job.lane for job in jobs) == {"a": 2, "b": 1}
    assert {job.attempts for job in jobs} == {1}
    lanes = {lane.lane: lane for lane in (await store.lanes(queue)).lanes}
    assert (lanes["a"].taken, lanes["a"].held) == (2, 2)
