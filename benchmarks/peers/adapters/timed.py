"""What the adapters of the mixed workload share: their command line, the jobs, and the file of their starts and ends.

    python mixed_saq.py fill '{"url": "redis://…", "lengths": [1.0, 0.02], "slots": 10, "how": "async"}'
    python mixed_saq.py work '{"url": …, "lengths": …, "slots": 10, "how": "async", "shared": "/…/shared"}'

`fill` enqueues a job for each length, in that order. `work` runs one worker with so many slots, whose handler calls
`Jobs.run` (`how` is "def" or "process") or awaits `Jobs.run_async` ("async"). A job notes its own start and end, by the
clock that all processes of a machine share. This file imports nothing but the standard library: it runs in the
environments of all the peers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import mmap
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The shared file: three floats of 8 bytes for each job.
START, END, RUNS, FLOATS = 0, 1, 2, 3
CHUNK = 500  # jobs in a call that enqueues many


@dataclass(frozen=True)
class Order:
    """What to do. A length is in seconds; a job of 0 seconds keeps a processor busy for `rounds` rounds instead."""

    url: str
    lengths: list[float]
    slots: int
    how: str
    shared: str = ""
    rounds: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    number: int = 0  # which of the workers this is, and how many there are: always the only one
    workers: int = 1
    count: int = 0

    def payloads(self) -> list[dict[str, Any]]:
        return [{"index": index, "seconds": seconds} for index, seconds in enumerate(self.lengths)]


class Jobs:
    """Runs jobs and notes when. A job's floats are written by the one thread that runs it, so no lock is needed."""

    def __init__(self, order: Order) -> None:
        self._rounds = order.rounds
        with Path(order.shared).open("r+b") as file:
            self._notes = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")

    def run(self, payload: dict[str, Any]) -> None:
        place = self._start(payload)
        if payload["seconds"]:
            time.sleep(payload["seconds"])
        else:
            spin(self._rounds)
        self._notes[place + END] = time.monotonic()

    async def run_async(self, payload: dict[str, Any]) -> None:
        place = self._start(payload)
        await asyncio.sleep(payload["seconds"])
        self._notes[place + END] = time.monotonic()

    def _start(self, payload: dict[str, Any]) -> int:
        place: int = FLOATS * payload["index"]
        self._notes[place + RUNS] += 1
        self._notes[place + START] = time.monotonic()
        return place


def spin(rounds: int) -> int:
    """The same work each time, of Python alone."""
    value = 0
    for number in range(rounds):
        value ^= number
    return value


def main(fill: Callable[[Order], None], work: Callable[[Order, Jobs], None]) -> None:
    """Do what the command line says."""
    logging.disable(logging.INFO)  # as in the other comparison: no line for each job
    what, text = sys.argv[1:]
    order = Order(**json.loads(text))
    if what == "fill":
        fill(order)
    else:
        work(order, Jobs(order))


if __name__ == "__main__":  # python timed.py ROUNDS JOBS: the seconds of processor time of the bare loop
    rounds, jobs = map(int, sys.argv[1:])
    before = time.process_time()
    for _ in range(jobs):
        spin(rounds)
    sys.stdout.write(f"{time.process_time() - before}\n")
