"""Part `waiters`: ten thousand waiters on a thousand keys. How long until each has its result, and how many fetches."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from accoda import App, Worker, WorkerOptions
from accoda.demand import Waiter
from accoda.settings import Settings
from benchmarks.scale.places import PLACES
from benchmarks.scale.record import Progress
from benchmarks.scale.sizes import Sizes

CALLERS = 200
BATCH = 500
PATIENCE = 600.0


class Crowd:
    """The demand, the waiters that were served, and how often it fetched."""

    def __init__(self, app: App, waiters: int, keys: int) -> None:
        self.waiters, self.keys = waiters, keys
        self.fetched = 0
        self.deliveries = 0
        self.served: set[str] = set()
        self.all_served = asyncio.Event()
        self.demand = app.demand("crowd", fresh_for=600)
        self.demand.fetch(self.fetch)
        self.demand.deliver(batch=BATCH)(self.deliver)

    async def fetch(self, key: str) -> str:
        self.fetched += 1
        return key

    async def deliver(self, waiter: Waiter[None], result: str) -> None:
        self.deliveries += 1
        self.served.add(waiter.id)
        if len(self.served) == self.waiters:
            self.all_served.set()

    async def join(self) -> None:
        """All ask, some hundred at a time, each for the key that is its turn."""
        numbers = iter(range(self.waiters))

        async def some() -> None:
            for number in numbers:
                await self.demand.request(f"key-{number % self.keys}", Waiter(f"waiter-{number}", tier="pro"))

        await asyncio.gather(*(some() for _ in range(CALLERS)))


async def measure(url: str, waiters: int, keys: int) -> dict[str, Any]:
    async with App(url) as app:
        crowd = Crowd(app, waiters, keys)
        begun = time.perf_counter()
        await crowd.join()
        joined = time.perf_counter()
        settings = Settings.load(environ={}, overrides={"max_processors": 4})
        worker = Worker(app, WorkerOptions(settings=settings))
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await crowd.all_served.wait()
        ended = time.perf_counter()
        await worker.graceful_stop(30)
        await running
    return {
        "joined_seconds": joined - begun,
        "served_seconds": ended - joined,
        "seconds": ended - begun,
        "fetches": crowd.fetched,
        "deliveries": crowd.deliveries,
        "served": len(crowd.served),
    }


def run(storages: list[str], sizes: Sizes, progress: Progress) -> dict[str, Any]:
    result: dict[str, Any] = {"waiters": sizes.waiters, "keys": sizes.keys}
    for name in [name for name in storages if name != "postgres"]:
        with PLACES[name]() as place:
            result[name] = asyncio.run(measure(place.url, sizes.waiters, sizes.keys))
        found = result[name]
        progress.tell(f"{name}: {found['served']:,} served in {found['seconds']:.1f} s by {found['fetches']:,} fetches")
    return result
