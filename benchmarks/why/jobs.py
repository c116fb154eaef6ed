"""Queues that differ: quick and slow jobs, single ones and batches, and one whose jobs are paid for."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from accoda import App

KEPT = 600.0
app = App()
app.budget("tokens", capacity=20, refill=40, per=10)


class Load(NamedTuple):
    """What comes into a queue: jobs a second, seconds of a job (from, to), bursts of so many every so many seconds."""

    queue: str
    rate: float
    low: float
    high: float
    burst: int
    every: float


# Together, with the bursts, about four fifths of what four processors can do, and of what the budget pays.
LOADS = (
    Load("thumbs", 10.0, 0.2, 0.6, 200, 20),
    Load("emails", 1.5, 0.1, 0.5, 50, 25),
    Load("reports", 0.15, 1.0, 4.0, 10, 30),
    Load("deals", 0.3, 0.05, 0.15, 8, 22),
)


@app.handler("thumbs", batch=10, keep_for=KEPT)
async def thumb(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.handler("emails", batch=1, keep_for=KEPT)
async def email(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.handler("reports", batch=1, keep_for=KEPT, policy="aging")
async def report(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.handler("deals", batch=2, keep_for=KEPT, budget="tokens", cost=5)
async def deal(seconds: float) -> None:
    await asyncio.sleep(seconds)
