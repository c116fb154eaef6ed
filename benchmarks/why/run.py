"""A minute of a busy system, and what `why` said in it."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from accoda import Priority
from accoda.connections import Connections
from accoda.operations.why import Explanation
from benchmarks.why.jobs import LOADS, Load, app

PROCESSES, PROCESSORS = 2, 2
LEVELS = (Priority.HIGH, Priority.NORMAL, Priority.NORMAL, Priority.NORMAL, Priority.LOW)
WARM = 8.0
"""Seconds before the first question: a worker's first heartbeats tell how fast it is."""


class Asked(Struct):
    """One question: what was said of a job's start, and when it came; seconds."""

    id: int
    queue: str
    gate: str
    ahead: int
    low: float
    likely: float
    high: float
    at: float
    real: float = -1.0
    took: float = 0.0

    @property
    def error(self) -> float:
        """A share of the real wait; of waits below a second, a share of a second."""
        return abs(self.likely - self.real) / max(self.real, 1.0)

    @property
    def within(self) -> bool:
        # A tenth of a second for the moment between a take and its commit.
        return self.low - 0.1 <= self.real <= self.high + 0.1


async def measure(folder: Path, seconds: float, seed: int) -> list[Asked]:
    """Run it all; give the questions whose jobs have started."""
    url = f"sqlite:///{folder}/why.db"
    app.url, app.connections = url, Connections(url)
    waiting: dict[int, str] = {}
    asked: list[Asked] = []
    end = time.monotonic() + seconds
    async with app, workers(url):
        producers = [asyncio.create_task(produce(load, waiting, end, random.Random(f"{seed}{load}"))) for load in LOADS]
        try:
            await asyncio.sleep(WARM)
            await ask(waiting, asked, end, random.Random(seed))
            await asyncio.gather(*producers)
        finally:
            for producer in producers:
                producer.cancel()
        await find_out(asked)
    return [each for each in asked if each.real >= 0]


@asynccontextmanager
async def workers(url: str) -> AsyncIterator[None]:
    """Real processes."""
    command = [sys.executable, "-m", "accoda", "worker", "benchmarks.why.jobs:app", "-c", str(PROCESSORS)]
    environment = {**os.environ, "ACCODA_URL": url}
    quiet = asyncio.subprocess.DEVNULL
    running = [
        await asyncio.create_subprocess_exec(*command, env=environment, stderr=quiet, stdin=quiet)
        for _ in range(PROCESSES)
    ]
    try:
        yield
    finally:
        for worker in running:
            if worker.returncode is None:
                worker.terminate()
        for worker in running:
            await worker.wait()


async def produce(load: Load, waiting: dict[int, str], end: float, chance: random.Random) -> None:
    """Jobs come by chance, and in bursts; some are urgent, some are delayed."""
    burst_at = time.monotonic() + chance.uniform(2, load.every)
    while time.monotonic() < end:
        await asyncio.sleep(chance.expovariate(load.rate))
        count = 1
        if time.monotonic() >= burst_at:
            count, burst_at = load.burst, burst_at + load.every
        delay = chance.uniform(1, 15) if count == 1 and chance.random() < 0.1 else None
        for _ in range(count):
            length, level = chance.uniform(load.low, load.high), chance.choice(LEVELS)
            made = await app.enqueue(load.queue, length, priority=level, delay=delay)
            waiting[made.id] = load.queue


async def ask(waiting: dict[int, str], asked: list[Asked], end: float, chance: random.Random) -> None:
    """Ask for some job of some queue that waits, at random moments."""
    while time.monotonic() < end:
        await asyncio.sleep(chance.expovariate(5.0))
        queue = chance.choice(LOADS).queue
        ids = [id for id, of in waiting.items() if of == queue]
        while ids:
            id, at, began = chance.choice(ids), time.time(), time.perf_counter()
            answer = await app.why(id)
            if answer.state in ("ready", "delayed"):
                took = time.perf_counter() - began
                if answer.start is not None:
                    asked.append(_asked(answer, at, took))
                break
            waiting.pop(id)
            ids.remove(id)


def _asked(answer: Explanation, at: float, took: float) -> Asked:
    shut = next((gate.name for gate in answer.gates if gate.verdict == "shut"), "none")
    start, ahead = answer.start, (answer.position or 1) - 1
    assert start is not None
    return Asked(answer.id, answer.queue, shut, ahead, start.low, start.likely, start.high, at, took=took)


async def find_out(asked: list[Asked], patience: float = 60.0) -> None:
    """Wait until the jobs have started, and note when."""
    give_up = time.monotonic() + patience
    left = list(asked)
    while left and time.monotonic() < give_up:
        for each in list(left):
            job = await app.find(each.id)
            if job is not None and job.taken_at is not None:
                each.real = max(0.0, job.taken_at / 1000 - each.at)
                left.remove(each)
        await asyncio.sleep(0.5)
