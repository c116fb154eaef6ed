"""Part `costs`: what one job costs at each batch size, by one client with one call at a time. The model begins here.

For `enqueue`, and for `run` (settle one batch and take the next, as a busy processor does): seconds of processor of the
client and of the store, seconds in all, bytes over the network and to the disk.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accoda import Done, Job, NewJob, Store, open_storage
from benchmarks.raw.shape import PAYLOAD
from benchmarks.scale.places import PLACES, Place
from benchmarks.scale.record import Progress
from benchmarks.scale.sizes import Sizes
from benchmarks.scale.usage import each_processor_seconds, grown, processor_seconds, thread_seconds, wire_bytes

Sample = dict[str, float]
QUEUE = "costs"
ROUNDS = 3


@dataclass(frozen=True)
class Meter:
    """What this process and the store have used so far."""

    wall: float
    client: float
    writing: float
    servers: dict[int, float]
    wire: float

    @classmethod
    def read(cls, place: Place) -> Meter:
        me = os.getpid()
        # SQLite is written by a thread of its own: what it uses is what a server would use.
        file = place.url.rpartition("/")[2]
        writers = [one.native_id for one in threading.enumerate() if one.name == f"accoda {file}" and one.native_id]
        writing = thread_seconds(me, writers)
        return cls(
            time.perf_counter(),
            processor_seconds([me]) - writing,
            writing,
            each_processor_seconds(place.servers()),
            wire_bytes(place.port) if place.port else 0,
        )

    def since(self, before: Meter, jobs: int) -> dict[str, float]:
        """For each job."""
        return {
            "wall": (self.wall - before.wall) / jobs,
            "client": (self.client - before.client) / jobs,
            "server": (self.writing - before.writing + grown(before.servers, self.servers)) / jobs,
            "wire": (self.wire - before.wire) / jobs,
        }


async def metered(
    place: Place, batch: int, step: Callable[[], Awaitable[None]], go_on: Callable[[int], bool]
) -> Sample:
    """Make calls while `go_on(calls so far)`, and what each job of them cost. The disk is asked outside of the rest, as
    that may be a query."""
    disk = await place.written()
    before, calls = Meter.read(place), 0
    while go_on(calls):
        await step()
        calls += 1
    found = Meter.read(place).since(before, calls * batch)
    return {**found, "disk": (await place.written() - disk) / (calls * batch), "calls": calls}


async def sample(place: Place, store: Store, batch: int, seconds: float) -> dict[str, Sample]:
    """Enqueue for so long, then run what was enqueued."""
    more = [NewJob(QUEUE, PAYLOAD)] * batch

    async def enqueue() -> None:
        await store.enqueue(more)

    end = time.perf_counter() + seconds
    put = await metered(place, batch, enqueue, lambda calls: calls < 3 or time.perf_counter() < end)
    for _ in range(2):
        await store.enqueue(more)
    jobs: list[Job] = await store.take(QUEUE, batch)

    async def settle_and_take() -> None:
        nonlocal jobs
        _, jobs = await asyncio.gather(store.settle([Done(job.lease) for job in jobs]), store.take(QUEUE, batch))
        assert len(jobs) == batch, "the queue ran empty: the sample would measure nothing"

    run = await metered(place, batch, settle_and_take, lambda calls: calls < put["calls"])
    await store.settle([Done(job.lease) for job in jobs])
    await store.purge(QUEUE, "ready")
    return {"enqueue": put, "run": run}


async def measure(place: Place, sizes: Sizes) -> dict[str, list[Sample]]:
    """The medians of some rounds at each batch size."""
    found: dict[str, list[Sample]] = {"enqueue": [], "run": []}
    async with await open_storage(place.url) as store:
        await store.enqueue([NewJob(QUEUE, PAYLOAD)] * 1000)
        for batch in sizes.batches:
            await sample(place, store, batch, sizes.seconds / 4)
            rounds = [await sample(place, store, batch, sizes.seconds) for _ in range(ROUNDS)]
            for what, points in found.items():
                names = [name for name in rounds[0][what] if name != "calls"]
                points.append({"batch": batch, **{n: statistics.median(one[what][n] for one in rounds) for n in names}})
    return found


async def bytes_for_each(place: Place, count: int) -> float:
    """What a waiting job takes in the store."""
    async with await open_storage(place.url) as store:
        await store.enqueue([NewJob(QUEUE, PAYLOAD)])
        before = await place.size()
        for _ in range(count // 1000):
            await store.enqueue([NewJob("weight", PAYLOAD)] * 1000)
    return (await place.size() - before) / (count // 1000 * 1000)


def sync_seconds(folder: Path, times: int = 50) -> float:
    """How long the disk takes to keep one page: the most that a single writer can commit is one in that time."""
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(times):
            os.write(file.fileno(), bytes(4096))
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def run(storages: list[str], sizes: Sizes, progress: Progress) -> dict[str, Any]:
    import uvloop

    folder = Path(tempfile.gettempdir())
    result: dict[str, Any] = {"payload": len(PAYLOAD), "sync_seconds": sync_seconds(folder), "cores": os.cpu_count()}
    for name in storages:
        with PLACES[name]() as place:
            result[name] = uvloop.run(measure(place, sizes))
            progress.tell(f"{name}: measured at batches of {', '.join(map(str, sizes.batches))}")
        with PLACES[name]() as place:
            result[name]["bytes"] = uvloop.run(bytes_for_each(place, max(1000, sizes.cluster_jobs // 2)))
    return result
