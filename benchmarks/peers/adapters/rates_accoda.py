"""Accoda: jobs are put in and worked off by one process, which times both. So it is the same for the memory storage."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import uvloop
from laned import CHUNK, Order, await_start, say

from accoda import App, Lanes, Worker, WorkerOptions
from accoda.settings import Settings

BATCH = 100
PAYLOAD = {"user": 12345, "template": "welcome", "language": "en"}


class Runs:
    """Counts the jobs that have run, and times them from the fifth to the last: at both moments as many are in hand."""

    def __init__(self, jobs: int) -> None:
        self._jobs, self._fifth = jobs, jobs // 5
        self._numbers = itertools.count(1)
        self._began = 0.0
        self.rate = 0.0
        self.complete = asyncio.Event()

    def ran(self) -> None:
        number = next(self._numbers)
        if number == self._fifth:
            self._began = time.perf_counter()
        elif number == self._jobs:
            self.rate = (self._jobs - self._fifth) / (time.perf_counter() - self._began)
            self.complete.set()


async def enqueue(app: App, order: Order) -> float:
    """Jobs a second."""
    lanes = itertools.cycle([f"customer-{number}" for number in range(order.lanes)] or [None])
    chunks = []
    for start in range(0, order.jobs, CHUNK):
        here = itertools.islice(lanes, min(CHUNK, order.jobs - start))
        chunks.append([app.new_job("noop", PAYLOAD, {"lane": lane} if lane else {}) for lane in here])
    began = time.perf_counter()
    for jobs in chunks:
        await app.storage.enqueue(jobs)
    return order.jobs / (time.perf_counter() - began)


async def run(order: Order) -> None:
    app, runs = App(order.url), Runs(order.jobs)
    rules = Lanes(limit=order.limit, fair=order.fair) if order.lanes else None

    @app.handler("noop", batch=BATCH, lanes=rules)
    async def noop(payload: dict[str, Any]) -> None:
        runs.ran()

    await app.storage.stats()  # connects
    if rules is not None:
        await app.storage.set_lanes("noop", rules)
    enqueued = await enqueue(app, order)
    await_start()
    settings = Settings.load(environ={}, overrides={"max_processors": 1})
    worker = Worker(app, WorkerOptions(queues=("noop",), settings=settings))
    await worker.init()
    running = asyncio.create_task(worker.run())
    await runs.complete.wait()
    say({"rate": runs.rate, "enqueued": enqueued})
    await running  # the harness ends it


if __name__ == "__main__":
    uvloop.run(run(Order.read()))
