"""What a round of the recorder costs: 1,000 queues of which 10 are active, on SQLite.

python benchmarks/history.py [--queues 1000] [--active 10] [--rounds 41]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time

from accoda import App, Done, ManualClock, NewJob
from accoda.operations.history.reading import read_history
from accoda.operations.history.recorder import ensure_job, recorder
from accoda.storage.protocol import Store

WARM = 10
"""Rounds before those that are measured: the first ones write every queue once."""


async def work(store: Store, active: int) -> None:
    """A few jobs in each of the active queues."""
    await store.enqueue([NewJob(f"queue-{number:04}") for number in range(active) for _ in range(3)])
    for number in range(active):
        await store.settle([Done(job.lease) for job in await store.take(f"queue-{number:04}", 3)])


async def measure(url: str, queues: int, active: int, rounds: int) -> None:
    clock = ManualClock()
    async with App(url, clock=clock) as app:
        store = await app.connections.get()
        await work(store, queues)
        await ensure_job(store)
        job, took, looks = recorder(app), [], []
        busy = 0.0
        for number in range(rounds + WARM):
            clock.advance(15)
            await work(store, active)
            began = time.perf_counter()
            await store.stats()
            looks.append((time.perf_counter() - began) * 1000)
            began, before = time.perf_counter(), time.process_time()
            assert await job.run_once(store) == 1
            took.append((time.perf_counter() - began) * 1000)
            busy += time.process_time() - before if number >= WARM else 0.0
        took = took[WARM:]
        print(f"{queues:,} queues, {active} active: a round takes {statistics.median(took):.1f} ms", end=" ")
        print(f"(from {min(took):.1f} to {max(took):.1f}; the longest also make the points of a day)")
        print(f"processor time of a round: {busy / rounds * 1000:.1f} ms")
        print(f"of which the counters of all queues (stats): {statistics.median(looks[WARM:]):.1f} ms")
        for span in ("1h", "24h", "7d"):
            began = time.perf_counter()
            await read_history(store, "queue-0000", span)
            print(f"reading {span}: {(time.perf_counter() - began) * 1000:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("queues", 1000), ("active", 10), ("rounds", 41)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(f"sqlite:///{folder}/jobs.db", given.queues, given.active, given.rounds))


if __name__ == "__main__":
    main()
