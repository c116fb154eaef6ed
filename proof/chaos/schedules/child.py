"""One scheduler: `python -m proof.chaos.schedules.child LEASE DOOM [torn]`. With the chance DOOM it dies in a tick.

A torn one is wrong on purpose, so that a test can see whether that is found: it stores what follows a tick before it
settles the tick, in two steps.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from typing import Any

from msgspec.structs import replace

from accoda import App, open_storage
from accoda.schedules import Scheduler


class Doomed:
    """A store whose user dies now and then: when a schedule was taken, right before it is settled, or right after."""

    def __init__(self, store: Any, chance: float) -> None:
        self._store = store
        self._chance = chance

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def take(self, *args: Any, **given: Any) -> Any:
        jobs = await self._store.take(*args, **given)
        if jobs:
            self._perhaps_die()
        return jobs

    async def settle(self, outcomes: Any) -> Any:
        self._perhaps_die()
        if random.random() < self._chance / 3:  # while the store is at it, or its answer is on the way
            asyncio.get_running_loop().call_later(random.uniform(0, 0.003), _die)
        refused = await self._store.settle(outcomes)
        self._perhaps_die()
        return refused

    def _perhaps_die(self) -> None:
        if random.random() < self._chance / 3:
            _die()


class Torn(Doomed):
    """Two steps where there should be one."""

    async def settle(self, outcomes: Any) -> Any:
        jobs = [job for outcome in outcomes for job in outcome.then]
        await self._store.enqueue([job for job in jobs if job.key is None])
        last = [replace(outcome, then=[job for job in outcome.then if job.key is not None]) for outcome in outcomes]
        return await super().settle(last)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(lease: float, doom: float, torn: bool) -> None:
    app = App()
    async with await open_storage(app.url) as store:
        doomed: Any = (Torn if torn else Doomed)(store, doom)
        await Scheduler(app.new_job, f"s{os.getpid()}", lease=lease).run(doomed)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), float(sys.argv[2]), "torn" in sys.argv))
