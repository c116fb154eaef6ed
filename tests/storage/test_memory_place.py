"""Where a record stands in memory, though the orderings there hold stale entries and know no tail of many ranks."""

from random import Random

import pytest

from accoda.model import NewJob, Rank
from accoda.storage.memory import MemoryStorage


async def line_of(store: MemoryStorage) -> list[int]:
    """The ids of the ready jobs, in order, by another way."""
    jobs = await store.browse("q", "ready", limit=100_000)
    return [id for _, id in sorted((job.rank, job.id) for job in jobs)]


async def some_line(rng: Random, ranks: int, size: int) -> MemoryStorage:
    store = MemoryStorage()
    jobs = [NewJob("q", rank=float(rng.randrange(ranks)), key=str(n)) for n in range(size)]
    ids = [each.id for each in await store.enqueue(jobs)]
    some = rng.sample(ids, size // 3)
    for _ in range(2):  # there and back: two entries for one job
        await store.rerank([Rank("q", id, float(rng.randrange(ranks))) for id in some])
    await store.remove(rng.sample(ids, size // 4))
    again = [NewJob("q", rank=job.rank, key=job.key, on_duplicate="replace") for job in rng.sample(jobs, 200)]
    await store.enqueue(again)
    return store


@pytest.mark.asyncio
@pytest.mark.parametrize("ranks", [1, 5, 50_000])
async def test_stale_entries_are_counted_for_nobody(ranks: int) -> None:
    async with await some_line(Random(ranks), ranks, 6000) as store:
        line = await line_of(store)
        for ahead in (0, 1, 99, 100, 1000, len(line) // 2, len(line) - 1000, len(line) - 101, len(line) - 1):
            place = await store.place(line[ahead], 100)
            assert place is not None
            if place.exact:
                assert place.ahead == ahead
            else:
                assert abs(place.ahead - ahead) <= max(ahead, len(line) // 4) / 10
            if ahead <= 100:
                assert place.exact and place.newer == sum(id > line[ahead] for id in line[:ahead])
            if ranks <= 5 and ahead >= len(line) - 101:
                assert place.exact


@pytest.mark.asyncio
async def test_a_place_leaves_the_order_as_it_is() -> None:
    async with await some_line(Random(3), 7, 3000) as store:
        line = await line_of(store)
        for id in line[::100]:
            await store.place(id, 10)
        assert [job.id for job in await store.take("q", 5000)] == line
