"""The orderings of a queue in memory hold stale hints; what is handed out, counted and listed does not show them."""

from random import Random

import pytest

from accoda.clock import ManualClock
from accoda.model import ById, NewJob, Remove, Rerank
from accoda.storage.memory import MemoryStorage


async def queue_with_stale_hints(rng: Random, ranks: int, size: int) -> MemoryStorage:
    store = MemoryStorage()
    jobs = [NewJob("q", rank=float(rng.randrange(ranks)), key=str(n)) for n in range(size)]
    ids = [each.id for each in await store.enqueue(jobs)]
    some = rng.sample(ids, size // 3)
    for _ in range(2):  # there and back: two hints for one job
        await store.change([Rerank(id, float(rng.randrange(ranks))) for id in some])
    await store.change([Remove(id) for id in rng.sample(ids, size // 4)])
    again = [NewJob("q", rank=job.rank, key=job.key, on_duplicate="replace") for job in rng.sample(jobs, size // 10)]
    await store.enqueue(again)
    return store


@pytest.mark.parametrize("ranks", [1, 5, 50_000])
async def test_stale_hints_hand_out_and_count_nothing(ranks: int) -> None:
    async with await queue_with_stale_hints(Random(ranks), ranks, 2000) as store:
        jobs = await store.browse("q", "ready", order="id", limit=10_000)
        line = [id for _, id in sorted((job.rank, job.id) for job in jobs)]
        assert [job.id for job in await store.browse("q", "ready", limit=10_000)] == line
        for place in (0, 1, 99, len(line) // 2, len(line) - 1):
            seen = await store.look(ById(line[place]), ahead=True)
            assert (seen.ahead, seen.newer) == (place, sum(id > line[place] for id in line[:place]))
        assert [job.id for job in await store.take("q", 10_000)] == line


async def test_stale_hints_are_dropped_when_they_are_the_majority() -> None:
    clock = ManualClock()
    async with MemoryStorage(clock) as store:
        (answer,) = await store.enqueue([NewJob("q")])
        for n in range(2000):
            await store.change([Rerank(answer.id, float(n))])
        (job,) = await store.take("q", 1, lease=5)
        for _ in range(2000):
            clock.advance(1)
            await store.extend([job.lease], 5)
        queue = store._queues["q"]
        assert len(queue.order) < 100
        assert len(queue.ages) < 100
        assert len(queue.due) < 100
