"""Part `workers`: one to eight worker processes on the cores of this machine. How drain grows, and where it stops."""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import asdict
from typing import Any

from accoda import open_storage
from benchmarks.scale.crew import Crew, Drained, drain
from benchmarks.scale.load import BATCH as LOAD_BATCH
from benchmarks.scale.load import LOADERS, load
from benchmarks.scale.load import Order as LoadOrder
from benchmarks.scale.places import PLACES, Place
from benchmarks.scale.record import Progress
from benchmarks.scale.sizes import Sizes
from benchmarks.scale.worker import Order

BATCH, PROCESSORS = 100, 4


def drained(place: Place, queue: str, processes: int, count: int, at_once: int = LOAD_BATCH) -> Drained:
    """Fill a paused queue, start the workers, open it. So no worker is measured while it starts."""
    asyncio.run(_pause(place.url, queue))
    load(LoadOrder(place.url, queue, count, batch=at_once), LOADERS[place.name])
    with Crew(place, Order(place.url, queue, "", batch=BATCH, processors=PROCESSORS), processes) as crew:
        found = drain(crew, count, lambda: asyncio.run(_resume(place.url, queue)))
        crew.stop()
    return found


def middle(found: list[Drained]) -> dict[str, Any]:
    """The round with the median rate, and all rates beside it."""
    chosen = sorted(found, key=lambda one: one.rate)[(len(found) - 1) // 2]
    facts = asdict(chosen)
    del facts["nodes"]  # of one server there is one
    return {**facts, "rates": [round(one.rate, 1) for one in found]}


def run(storages: list[str], sizes: Sizes, progress: Progress) -> dict[str, Any]:
    """Rounds over all numbers of processes, so that each number meets the same noise."""
    result: dict[str, Any] = {"batch": BATCH, "processors": PROCESSORS}
    for name in storages:
        found: dict[int, list[Drained]] = {number: [] for number in sizes.processes}
        count = max(500, int(sizes.drains[name]))
        with PLACES[name]() as place:
            for turn in range(sizes.drain_rounds):
                for number in sizes.processes:
                    queue = f"drain-{turn}-{number}"
                    found[number].append(drained(place, queue, number, count))
                    progress.tell(f"{name}, {number} processes: {found[number][-1].rate:,.0f} jobs a second")
        result[name] = {"points": [middle(found[number]) for number in sizes.processes]}
        best = max(statistics.median(one.rate for one in rounds) for rounds in found.values())
        result[name]["stops_at"] = _stop(found, best)
    return result


def _stop(found: dict[int, list[Drained]], best: float) -> int:
    """The least number of processes that comes within a tenth of the best."""
    return min(number for number, rounds in found.items() if statistics.median(o.rate for o in rounds) >= 0.9 * best)


async def _pause(url: str, queue: str) -> None:
    async with await open_storage(url) as store:
        await store.pause(queue, None)


async def _resume(url: str, queue: str) -> None:
    async with await open_storage(url) as store:
        await store.pause(queue, 0)
