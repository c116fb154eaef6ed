"""`python -m benchmarks.storms [--storage NAME ...]`: how long one call may take when much is due at the same moment.

Leases of many jobs end at one moment, or many retries start at one: then workers take and settle until all is done. The
table gives the longest single call of each verb, and the time until all were taken. `--jobs` is the number of leases;
of retries there is a tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from proof.servers.process import ServerMissing

from accoda import Done, Job, NewJob, Retry, Store, open_storage
from benchmarks.engines import ENGINES, Engine
from benchmarks.raw.shape import PAYLOAD
from benchmarks.report import table

HEADINGS = ["storage", "storm", "jobs", "longest take", "settle", "stats", "wait", "all taken after"]
T = TypeVar("T")
AHEAD = 1.0  # seconds between the last preparation and the storm


class Longest:
    """The longest call of each verb, in seconds."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}

    async def time(self, verb: str, call: Awaitable[T]) -> T:
        start = time.perf_counter()
        try:
            return await call
        finally:
            self.of[verb] = max(self.of.get(verb, 0.0), time.perf_counter() - start)

    def cell(self, verb: str) -> str:
        return f"{self.of.get(verb, 0.0) * 1000:.0f} ms"


async def fill(store: Store, queue: str, count: int) -> list[list[Job]]:
    """Take that many jobs, in batches of a thousand, with a long lease."""
    for _ in range(0, count, 10_000):
        await store.enqueue([NewJob(queue, PAYLOAD)] * min(count, 10_000))
    batches = []
    while jobs := await store.take(queue, 1000, lease=3600):
        batches.append(jobs)
    return batches


async def end_leases(store: Store, batches: list[list[Job]], at: float) -> None:
    """Let all leases end at about the moment `at`."""
    for jobs in batches:
        await store.extend([job.lease for job in jobs], max(0.001, at - time.time()))


async def retry_all(store: Store, batches: list[list[Job]], at: float) -> None:
    for jobs in batches:
        await store.settle([Retry(job.lease, at=round(at * 1000)) for job in jobs])


async def storm(
    store: Store, name: str, count: int, prepare: Callable[[Store, list[list[Job]], float], Awaitable[None]]
) -> list[str]:
    """Prepare it, wait until it breaks, and work it off. The clock of this machine is good enough for "about"."""
    queue = name.replace(" ", "-")
    batches = await fill(store, queue, count)
    start = time.perf_counter()
    await prepare(store, batches, time.time() + 3600)  # once, to see how long it takes
    if prepare is retry_all:
        batches = await fill(store, queue + "-2", count)
        queue += "-2"
    at = time.time() + 2 * (time.perf_counter() - start) + AHEAD
    await prepare(store, batches, at)
    await asyncio.sleep(max(0.0, at - time.time()))
    longest, begun, done = Longest(), time.perf_counter(), 0
    await longest.time("stats", store.stats())
    while done < count:
        await longest.time("wait", store.wait([queue], 5))
        jobs = await longest.time("take", store.take(queue, 100))
        await longest.time("settle", store.settle([Done(job.lease) for job in jobs]))
        done += len(jobs)
    whole = time.perf_counter() - begun
    return [name, f"{count:,}", *map(longest.cell, ("take", "settle", "stats", "wait")), f"{whole:.1f} s"]


async def measure(engine: Engine, jobs: int) -> list[list[str]]:
    async with await open_storage(engine.url or "memory://") as store:
        return [
            [engine.name, *await storm(store, "leases end", jobs, end_leases)],
            [engine.name, *await storm(store, "retries start", jobs // 10, retry_all)],
        ]


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storms", description=__doc__)
    parser.add_argument("--storage", action="append", choices=[*ENGINES], help="one of them; all unless told")
    parser.add_argument("--jobs", type=int, default=100_000)
    chosen = parser.parse_args()
    rows: list[list[str]] = []
    for name in chosen.storage or ENGINES:
        try:
            async with ENGINES[name]() as engine:
                rows += await measure(engine, chosen.jobs)
        except ServerMissing as missing:
            print(f"{name}: not measured: {missing}")
    print(table(HEADINGS, rows))


if __name__ == "__main__":
    asyncio.run(main())
