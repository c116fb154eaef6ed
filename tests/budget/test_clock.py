"""The storage's clock, by what it told and a steady clock of our own."""

import asyncio
import random
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from accoda.budget import Ask, Books, Budget, Grant, Settlement, Spent, StorageClock
from accoda.budget.clock import EVERY
from accoda.clock import ManualClock
from accoda.model import Head, Look
from accoda.storage.memory import MemoryStorage
from accoda.storage.protocol import Store


class Steady:
    """A steady clock that tests move, with its own idea of when it began."""

    def __init__(self, began: float) -> None:
        self.seconds = began

    def __call__(self) -> float:
        return self.seconds


class Far:
    """A store that is `there` and `back` seconds away: calls take that long on both clocks."""

    def __init__(self, store: MemoryStorage, clock: ManualClock, steady: Steady) -> None:
        self.store, self.clock, self.steady = store, clock, steady
        self.there = self.back = 0.0
        self.looks = 0

    async def look(self, target: Head) -> Look:
        self.looks += 1
        self.pass_time(self.there)
        answer = await self.store.look(target)
        self.pass_time(self.back)
        return answer

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.steady.seconds += seconds


def far(began: float = 5.0) -> tuple[Far, StorageClock]:
    clock, steady = ManualClock(), Steady(began)
    store = Far(MemoryStorage(clock), clock, steady)

    async def get() -> Store:
        return cast(Store, store)

    return store, StorageClock(get, monotonic=steady)


async def test_it_is_the_storage_s_clock_less_the_way_back() -> None:
    store, clock = far()
    store.there, store.back = 0.3, 0.2
    await clock.now()
    assert store.clock.now() - clock.guess() == 200
    store.pass_time(10)
    assert store.clock.now() - clock.guess() == 200


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 100_000)), min_size=1))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_it_is_never_ahead_and_behind_by_at_most_the_quickest_way_back(ways: list[tuple[int, int, int]]) -> None:
    async def scenario() -> None:
        store, clock = far()
        backs = []
        for there, back, between in ways:
            looks, store.there, store.back = store.looks, there / 1000, back / 1000
            await clock.now()
            behind = store.clock.now() - clock.guess()
            if store.looks > looks:
                backs.append(back)
            assert -1 <= behind <= min(backs[-8:]) + 2
            store.pass_time(between / 1000)

    asyncio.run(scenario())


async def test_it_looks_again_now_and_then_only() -> None:
    store, clock = far()
    for _ in range(10):
        await clock.now()
        store.pass_time(EVERY / 10)
    assert store.looks == 1
    await clock.now()
    assert store.looks == 2


async def test_a_storage_whose_clock_was_set_is_believed_at_the_next_look() -> None:
    store, clock = far()
    await clock.now()
    store.clock._now -= 3_600_000  # set back by an hour
    store.pass_time(EVERY)
    assert await clock.now() == store.clock.now()


async def test_with_a_clock_of_the_app_it_is_that_clock() -> None:
    manual = ManualClock(1234)

    async def get() -> Store:
        raise AssertionError("the storage is not asked")

    clock = StorageClock(get, manual)
    assert await clock.now() == clock.guess() == 1234


async def test_the_look_leaves_no_queue_behind() -> None:
    store, clock = far()
    await clock.now()
    assert (await store.store.stats()).queues == {}


async def test_a_worker_whose_clocks_are_an_hour_off_reserves_no_more_than_others() -> None:
    """Two workers on one store, whose steady clocks began at other moments; one lives in the past and one far away."""
    storage_clock, chance = ManualClock(), random.Random(7)
    store = MemoryStorage(storage_clock)
    budgets = {"keepa": Budget("keepa", 20, 20, 60)}
    workers: list[tuple[Books, Far]] = []
    for began in (0.0, 3600.0, 1e6):
        steady = Steady(began)
        way = Far(store, storage_clock, steady)

        async def get(way: Far = way) -> Store:
            return cast(Store, _Both(way))

        workers.append((Books(get, budgets, StorageClock(get, monotonic=steady)), way))
    granted = 0
    start = storage_clock.now()
    for _ in range(200):
        books, _ = workers[chance.randrange(3)]
        answer = await books.reserve(Ask("deals", ("keepa",), 1))
        granted += isinstance(answer, Grant)
        if isinstance(answer, Grant):
            await books.keep(answer, 1, 1)
            await books.settle(Settlement(answer, Spent(1, 1)))
        storage_clock.advance(1)
        for _, way in workers:
            way.steady.seconds += 1
    seconds = (storage_clock.now() - start) / 1000
    assert 20 + seconds / 3 - 2 <= granted <= 20 + seconds / 3


class _Both:
    """Looks from afar, documents from near."""

    def __init__(self, way: Far) -> None:
        self.look = way.look
        self.read = way.store.read
        self.write = way.store.write
