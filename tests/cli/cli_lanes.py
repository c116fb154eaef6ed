"""The shop with a queue of mailings whose customers are its lanes."""

import asyncio
import shutil
from pathlib import Path

import msgspec
from cli_world import NOW

from accoda import App, ManualClock
from accoda.lanes.rules import declare
from accoda.model import Lanes, NewJob
from accoda.runtime.served_lanes import PREFIX, STEP, Slot

RULES = Lanes(limit=2, fair=True, limits={"customer-12": 0}, weights={"customer-7": 3})
RUNS = {"customer-7": 612, "customer-3": 590, "customer-21": 204, "anna's shop": 8}
JOBS = {"customer-7": 9, "customer-3": 4, "customer-12": 2, "anna's shop": 1}


def build_lanes(prepared: Path, folder: Path) -> Path:
    """A copy of the shop with them: three of the jobs run."""
    shutil.copytree(prepared, folder)
    asyncio.run(_fill(f"sqlite:///{folder.as_posix()}/accoda.db"))
    return folder


async def _fill(url: str) -> None:
    clock = ManualClock(NOW - 4000)
    async with App(url, clock=clock) as app:
        await declare(app.storage, "mailings", RULES)
        for lane, count in JOBS.items():
            await app.storage.enqueue([NewJob("mailings", lane=lane, rank=2.0) for _ in range(count)])
        await app.storage.take("mailings", 3, worker="alpha")
        hour = msgspec.json.encode([Slot(NOW // STEP, 1480, RUNS)])
        await app.storage.write(f"{PREFIX}mailings/alpha", hour, ttl=3600)
