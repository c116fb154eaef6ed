"""Rates of one storage and of its bare engine, taken in turns so that both meet the same noise."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from accoda import Done, Job, NewJob, Store
from benchmarks.raw.shape import PAYLOAD, Raw

BATCHES = (1, 10, 100, 1000)


@dataclass(frozen=True)
class Rate:
    """Jobs a second: the medians over the rounds. `ratio` is Accoda to the bare engine, `to_few` Accoda with this many
    waiting to Accoda with few: the median of the rounds' own ratios."""

    storage: str
    what: str
    batch: int
    waiting: int
    accoda: float
    raw: float
    ratio: float
    to_few: float


@dataclass(frozen=True)
class Effort:
    """How long each sample may take, and how many there are."""

    seconds: float = 0.3
    rounds: int = 5


def new_jobs(queue: str, count: int, levels: int) -> list[NewJob]:
    return [NewJob(queue, PAYLOAD, rank=float(number % levels)) for number in range(count)]


@dataclass(frozen=True)
class Side:
    """A store and a bare engine in which the same number of jobs waits, on that many priority levels."""

    waiting: int
    levels: int
    queue: str
    store: Store
    raw: Raw

    async def fill(self, progress: Callable[[str], None]) -> None:
        step = min(self.waiting, 10_000)
        for done in range(0, self.waiting, step):
            await self.store.enqueue(new_jobs(self.queue, step, self.levels))
            await self.raw.enqueue(step)
            progress(f"{done + step:,} of {self.waiting:,} waiting")


Samples = dict[str, list[tuple[float, float]]]  # by what was measured: Accoda's rate and the engine's, a pair a round


async def rates(name: str, sides: list[Side], batch: int, effort: Effort) -> list[Rate]:
    """Rates with few and with many waiting, all in turns, so that every number meets the same noise."""
    samples: list[Samples] = [{"enqueue": [], "take": [], "take+settle": [], "fused": []} for _ in sides]
    for _ in range(effort.rounds):
        for side, found in zip(sides, samples, strict=True):
            await _round(side, batch, effort.seconds, found)
    return [
        Rate(
            name,
            what,
            batch,
            side.waiting,
            statistics.median(ours for ours, _ in pairs),
            statistics.median(theirs for _, theirs in pairs),
            statistics.median(ours / theirs for ours, theirs in pairs),
            statistics.median(ours / first for (ours, _), (first, _) in zip(pairs, samples[0][what], strict=True)),
        )
        for side, found in zip(sides, samples, strict=True)
        for what, pairs in found.items()
    ]


async def _round(side: Side, batch: int, seconds: float, found: Samples) -> None:
    """Enqueue, then take and settle as many: the number of waiting jobs stays as it is."""
    raw = side.raw
    ours, count = await _enqueue(side, batch, seconds)
    found["enqueue"].append((ours, await _enqueue_raw(raw, batch, count)))
    half = count // batch // 2 * batch
    ours, our_takes = await _drain(side, batch, half)
    theirs, their_takes = await _drain_raw(raw, batch, half)
    found["take"].append((our_takes, their_takes))
    found["take+settle"].append((ours, theirs))
    ours = await _drain_fused(side, batch, count - half)
    theirs, _ = await _drain_raw(raw, batch, count - half)
    found["fused"].append((ours, theirs))


async def producers(store: Store, count: int, seconds: float) -> float:
    """Jobs a second that `count` concurrent callers enqueue, each one at a time."""

    async def produce() -> None:
        await store.enqueue([NewJob("produced", PAYLOAD)])

    return await together(produce, count, seconds)


async def processors(store: Store, count: int, seconds: float) -> float:
    """Jobs a second that `count` concurrent callers take and settle, each one at a time."""
    queue = "processed"
    for _ in range(20):
        await store.enqueue(new_jobs(queue, 1000, 1))

    async def process() -> None:
        jobs = await store.take(queue, 1)
        assert jobs, "the queue ran empty: the sample would measure nothing"
        await store.settle([Done(jobs[0].lease)])

    rate = await together(process, count, seconds)
    await store.purge(queue, "ready")
    return rate


async def together(step: Callable[[], Awaitable[None]], count: int, seconds: float) -> float:
    """Steps a second that so many callers make, each one after another."""
    start = time.perf_counter()
    total = 0

    async def run() -> None:
        nonlocal total
        while time.perf_counter() - start < seconds:
            await step()
            total += 1

    await asyncio.gather(*(run() for _ in range(count)))
    return total / (time.perf_counter() - start)


async def _enqueue(side: Side, batch: int, seconds: float) -> tuple[float, int]:
    start = time.perf_counter()
    count = 0
    while time.perf_counter() - start < seconds or count < 2 * batch:
        await side.store.enqueue(new_jobs(side.queue, batch, side.levels))
        count += batch
    return count / (time.perf_counter() - start), count


async def _enqueue_raw(raw: Raw, batch: int, count: int) -> float:
    start = time.perf_counter()
    for _ in range(0, count, batch):
        await raw.enqueue(batch)
    return count / (time.perf_counter() - start)


async def _drain(side: Side, batch: int, count: int) -> tuple[float, float]:
    """Take and settle, one after the other: the rate of both together, and of the takes alone."""
    start = time.perf_counter()
    done = 0
    taking = 0.0
    while done < count:
        before = time.perf_counter()
        jobs = await side.store.take(side.queue, batch, worker="bench")
        taking += time.perf_counter() - before
        assert jobs, "the queue ran empty: the sample would measure nothing"
        await side.store.settle(_done(jobs))
        done += len(jobs)
    return done / (time.perf_counter() - start), done / taking


async def _drain_fused(side: Side, batch: int, count: int) -> float:
    """As a busy processor does it: settle one batch and take the next at the same moment."""
    start = time.perf_counter()
    jobs = await side.store.take(side.queue, batch, worker="bench")
    done = len(jobs)
    while done < count:
        _, jobs = await asyncio.gather(
            side.store.settle(_done(jobs)), side.store.take(side.queue, batch, worker="bench")
        )
        assert jobs, "the queue ran empty: the sample would measure nothing"
        done += len(jobs)
    await side.store.settle(_done(jobs))
    return done / (time.perf_counter() - start)


async def _drain_raw(raw: Raw, batch: int, count: int) -> tuple[float, float]:
    start = time.perf_counter()
    done = 0
    taking = 0.0
    while done < count:
        before = time.perf_counter()
        leases = await raw.take(batch)
        taking += time.perf_counter() - before
        assert leases, "the queue ran empty: the sample would measure nothing"
        await raw.settle(leases)
        done += len(leases)
    return done / (time.perf_counter() - start), done / taking


def _done(jobs: list[Job]) -> list[Done]:
    return [Done(job.lease) for job in jobs]
