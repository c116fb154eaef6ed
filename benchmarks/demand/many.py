"""A hundred thousand waiters on one key: all join, one fetch serves them, each gets its delivery."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from accoda import App, Worker, WorkerOptions
from accoda.demand import Demand, Waiter
from accoda.settings import Settings
from benchmarks.demand.probe import Probe

CALLERS = 200
BATCH = 500
PATIENCE = 600.0


@dataclass(frozen=True)
class Many:
    """Seconds for each part, and the longest that another client waited for an answer meanwhile.

    `ended_in` is the time from the return of `fetch` to the first delivery: the step that ends it.
    """

    storage: str
    waiters: int
    joined_in: float
    ended_in: float
    delivered_in: float
    calls: int
    delivered: int
    stall_joining: float
    stall_ending: float
    stall_delivering: float


class Run:
    """The demand, and what happened when."""

    def __init__(self, app: App, waiters: int) -> None:
        self.waiters = waiters
        self.calls = 0
        self.seen: set[str] = set()
        self.deliveries = 0
        self.fetched_at = 0.0
        self.first_at = 0.0
        self.all_served = asyncio.Event()
        self.demand: Demand = app.demand("many", fresh_for=600)
        self.demand.fetch(self.fetch)
        self.demand.deliver(batch=BATCH)(self.deliver)

    async def fetch(self, key: str) -> str:
        self.calls += 1
        self.fetched_at = time.monotonic()
        return "result"

    async def deliver(self, waiter: Waiter[None], result: str) -> None:
        if not self.deliveries:
            self.first_at = time.monotonic()
        self.deliveries += 1
        self.seen.add(waiter.id)
        if len(self.seen) == self.waiters:
            self.all_served.set()

    async def join(self) -> None:
        numbers = iter(range(self.waiters))

        async def some() -> None:
            for number in numbers:
                await self.demand.request("hot", Waiter(f"automation-{number}", tier="pro"))

        await asyncio.gather(*(some() for _ in range(CALLERS)))


async def many(storage: str, url: str, waiters: int) -> Many:
    async with App(url) as app, Probe(url) as probe:
        run = Run(app, waiters)
        began = time.monotonic()
        await run.join()
        joined = time.monotonic()
        settings = Settings.load(environ={}, overrides={"max_processors": 2})
        worker = Worker(app, WorkerOptions(settings=settings))
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await run.all_served.wait()
        ended = time.monotonic()
        await worker.graceful_stop(30)
        await running
    return Many(
        storage,
        waiters,
        joined - began,
        run.first_at - run.fetched_at,
        ended - run.first_at,
        run.calls,
        run.deliveries,
        probe.longest(began, joined),
        probe.longest(joined, run.first_at),
        probe.longest(run.first_at, ended),
    )
