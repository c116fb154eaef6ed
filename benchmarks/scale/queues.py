"""Part `queues`: a thousand queues in one worker process, beside one queue with as many jobs."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from dataclasses import replace
from typing import Any

from accoda import NewJob, open_storage
from accoda.payload import encode
from benchmarks.scale.crew import Crew
from benchmarks.scale.load import Order as LoadOrder
from benchmarks.scale.load import load
from benchmarks.scale.places import PLACES, Place
from benchmarks.scale.record import Progress
from benchmarks.scale.sizes import Sizes
from benchmarks.scale.worker import Order

BATCH, PROCESSORS = 100, 4


def drain_seconds(place: Place, order: Order, count: int) -> dict[str, float]:
    """The jobs wait, a worker starts, and all are done: from its first look until the last job, with what it used."""
    load(LoadOrder(place.url, order.queue, count, queues=order.queues))
    begun = time.perf_counter()
    with Crew(place, order, 1) as crew:
        started, before = time.perf_counter(), crew.used()
        crew.wait_for(count)
        ended = time.perf_counter()
        used = crew.used().since(before)
        crew.stop()
    return {
        "seconds": ended - started,
        "with_start": ended - begun,
        "rate": count / (ended - started),
        "processor": sum(used) / count,
    }


def idle(place: Place, order: Order, sizes: Sizes) -> dict[str, float]:
    """The share of a core that a worker with nothing to do uses, with the server's; then single jobs, each in one of
    its queues, and by how much later each ran."""
    with Crew(place, replace(order, late=True), 1) as crew:
        time.sleep(sizes.settle_seconds)  # its first look into every queue, the first word of the manager
        before, begun = crew.used(), time.perf_counter()
        time.sleep(sizes.idle_seconds)
        used, spent = crew.used().since(before), time.perf_counter() - begun
        asyncio.run(_single_jobs(place, order, sizes.latencies, crew))
        late = sorted(one * 1000 for one in crew.stop()[0]["late"])
    return {
        "client_share": used[0] / spent,
        "server_share": used[1] / spent,
        "latency_ms": statistics.median(late),
        "latency_99_ms": late[int(len(late) * 0.99)],
        "latency_worst_ms": late[-1],
    }


async def _single_jobs(place: Place, order: Order, count: int, crew: Crew) -> None:
    """Each after a pause, so that the worker sleeps when it comes."""
    chance = random.Random(1)
    names = order.names
    async with await open_storage(place.url) as store:
        for number in range(count):
            await asyncio.sleep(chance.uniform(0.03, 0.06))
            await store.enqueue([NewJob(chance.choice(names), encode(time.time()))])
            await asyncio.to_thread(crew.wait_for, number + 1)


def measure(name: str, sizes: Sizes) -> dict[str, Any]:
    count = sizes.queues * sizes.per_queue
    found: dict[str, Any] = {}
    for words, queues in (("one", 0), ("many", sizes.queues)):
        with PLACES[name]() as place:
            order = Order(place.url, "jobs", "", queues=queues, batch=BATCH, processors=PROCESSORS)
            found[words] = drain_seconds(place, order, count)
            found[words] |= idle(place, order, sizes)
    found["slower"] = found["many"]["seconds"] / found["one"]["seconds"]
    return found


def run(storages: list[str], sizes: Sizes, progress: Progress) -> dict[str, Any]:
    result: dict[str, Any] = {"queues": sizes.queues, "jobs": sizes.queues * sizes.per_queue}
    for name in storages:
        result[name] = measure(name, sizes)
        progress.tell(f"{name}: {sizes.queues} queues take {result[name]['slower']:.1f} times as long as one")
    return result
