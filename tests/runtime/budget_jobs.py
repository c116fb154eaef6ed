"""The app that the budget tests run in worker processes. Every call is written to a file, a line each, in one write."""

import asyncio
import os
import time
from pathlib import Path

from accoda import App, ManualClock, RateLimited

CAPACITY, RATE = 10, 60
FROZEN_AT = 1_700_000_000_000

app = App(clock=ManualClock(FROZEN_AT) if os.environ.get("FROZEN") else None)
app.budget("api", capacity=CAPACITY, refill=RATE, per=1)
LOG = Path(os.environ.get("CALLS_LOG", "calls.log"))


def call(cost: int) -> None:
    """Call the API. One small O_APPEND write is whole or not there; the steady clock is the same in all processes."""
    line = f"{time.monotonic()} {cost} {os.getpid()}\n"
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


@app.handler("calls", budget="api", batch=3, cost=lambda cost: cost)
async def calls(cost: int) -> None:
    call(cost)
    await asyncio.sleep(0.05)  # while one worker calls, the other can have what came in


@app.handler("hangs", budget="api", batch=1, cost=lambda cost: cost, lease=30)
async def hangs(cost: int) -> None:
    call(cost)
    await asyncio.sleep(3600)


@app.handler("child", budget="api", batch=5, cost=1, run_in="process")
def child(left: int) -> None:
    if left == 0:
        raise RateLimited(retry_after=30, budget="api", reason="429")
    app.current.budget.spent(2)
    app.current.budget.observe(left=left, refill_in=30)


@app.handler("closes", budget="api", cost=1, run_in="process")
def closes(seconds: int) -> None:
    app.current.budget.close(seconds=seconds)
