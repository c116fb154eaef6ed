"""Put very many jobs into a store, by one process or several, and see how fast it goes on the way.

`python -m benchmarks.scale.load ORDER` is one of these processes; it prints how many it has stored, again and again.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from accoda import NewJob, open_storage
from accoda.payload import encode
from benchmarks.raw.shape import PAYLOAD
from benchmarks.scale.processes import run_module
from benchmarks.scale.usage import processor_seconds

BATCH = 10_000
LOADERS = {"sqlite": 1, "redis": 2, "postgres": 2}
"""Processes that load at once: what a machine with two cores gains by. SQLite has one writer."""


@dataclass(frozen=True)
class Order:
    """What one process stores: so many jobs, or so many delayed ones that come due between two moments.

    `queues` is a number of queues in turn: `queue-0`, `queue-1`, …; 0 means the queue itself.
    """

    url: str
    queue: str
    count: int
    due_from: float = 0.0
    due_until: float = 0.0
    batch: int = BATCH
    queues: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Loaded:
    """Seconds for all, the steps on the way as (jobs, seconds), and the processor time of the processes for a job."""

    count: int
    seconds: float
    steps: list[tuple[int, float]]
    client: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    def rates(self, parts: int = 10) -> list[tuple[int, float]]:
        """The rate of each tenth, say: (jobs that were in by its end, jobs a second in it)."""
        found, last = [], (0, 0.0)
        for number in range(1, parts + 1):
            goal = self.count * number // parts
            step = next((each for each in self.steps if each[0] >= goal), self.steps[-1])
            if step[0] > last[0] and step[1] > last[1]:
                found.append((step[0], (step[0] - last[0]) / (step[1] - last[1])))
                last = step
        return found


def load(order: Order, loaders: int = 1, tell: Callable[[str], None] = lambda text: None) -> Loaded:
    """Store them all, by so many processes, and return when the last is stored. The first batch starts the clock."""
    shares = [order.count // loaders + (number < order.count % loaders) for number in range(loaders)]
    orders = [replace(order, count=share, seed=number) for number, share in enumerate(shares)]
    marks: list[tuple[float, int]] = []
    used: list[float] = []
    with ThreadPoolExecutor(loaders) as pool:
        for part in pool.map(lambda each: _watch(each, tell), orders):
            marks += part[0]
            used.append(part[1])
    return _joined(order.count, marks, sum(used))


def _joined(count: int, marks: list[tuple[float, int]], used: float) -> Loaded:
    """Of what each process told: moments, and how many jobs more were in at each (0: it began)."""
    marks.sort()
    begin, done, steps = marks[0][0], 0, []
    for moment, more in marks:
        done += more
        if more:
            steps.append((done, moment - begin))
    return Loaded(count, steps[-1][1], steps, used / count)


def _watch(order: Order, tell: Callable[[str], None]) -> tuple[list[tuple[float, int]], float]:
    marks, done, used = [], 0, 0.0
    with run_module("load", json.dumps(asdict(order))) as process:
        assert process.stdout is not None
        for line in process.stdout:
            at, more, used = json.loads(line)
            done += more
            marks.append((at, more))
            tell(f"{done:,} of {order.count:,} stored")
    if process.returncode or done != order.count:
        raise RuntimeError(f"a loader of {order.queue} ended with {process.returncode} after {done:,} jobs")
    return marks, used


def batches(order: Order) -> Callable[[int, int], list[NewJob]]:
    """What makes a batch: jobs number `first` up to `first + size`."""
    if order.due_until:
        chance = random.Random(order.seed)

        def delayed(first: int, size: int) -> list[NewJob]:
            moments = [round(chance.uniform(order.due_from, order.due_until), 3) for _ in range(size)]
            return [NewJob(order.queue, encode(due), start_at=round(due * 1000)) for due in moments]

        return delayed
    if order.queues:
        jobs = [NewJob(f"{order.queue}-{number}", _DATA) for number in range(order.queues)]
        return lambda first, size: [jobs[number % len(jobs)] for number in range(first, first + size)]
    one = NewJob(order.queue, PAYLOAD if order.queue == "waiting" else _DATA)
    return lambda first, size: [one] * size


_DATA = encode(0.0)


async def store_all(order: Order) -> None:
    make = batches(order)
    async with await open_storage(order.url) as store:
        await store.stats()  # connected
        mine = processor_seconds([os.getpid()])
        print(json.dumps((time.monotonic(), 0, 0.0)), flush=True)
        for first in range(0, order.count, order.batch):
            size = min(order.batch, order.count - first)
            await store.enqueue(make(first, size))
            used = processor_seconds([os.getpid()]) - mine
            print(json.dumps((time.monotonic(), size, used)), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(store_all(Order(**json.loads(sys.argv[1]))))
