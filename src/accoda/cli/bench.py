"""`accoda bench`: how many jobs a second the store behind a URL takes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import Column, StoreOptions, present, run, say, shown_url, store_options, table
from accoda.cli.draw import bar

if TYPE_CHECKING:
    from accoda.storage.protocol import Store

QUEUE = "accoda.bench"
"""A queue of its own; like all of ours it is hidden from lists."""
PAYLOAD = b"x" * 100
BATCH = 100
MOST = 200_000
"""Jobs that are left to be taken at most, so that a fast store is not filled."""

Step = Callable[["Store"], Awaitable[int]]


@click.command()
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="How long, in all.")
@store_options
def bench(store: StoreOptions, seconds: float) -> None:
    """Measure how many jobs a second the store takes and gives.

    This writes to the store, in the queue accoda.bench, which is emptied afterwards. Others who use the store are
    slowed down meanwhile.
    """
    rates = {name: round(rate, 1) for name, rate in run(_bench(store, seconds)).items()}
    present(store, rates, draw_rates)


def draw_rates(rates: dict[str, float]) -> None:
    """A line and a bar for each."""
    most = max(rates.values()) or 1.0
    table(
        ["", Column("jobs a second", right=True), ""],
        [(name, f"{rate:,.0f}", bar(rate / most, 30)) for name, rate in rates.items()],
    )


async def _bench(store: StoreOptions, seconds: float) -> dict[str, float]:
    async with store.open(create=True, memory=True) as app:
        say(f"Writing to {shown_url(app.url)} for {seconds:g} s, in the queue {QUEUE} …", err=True)
        opened = await app.connections.get()
        await _empty(opened)
        try:
            return {name: await _rate(step, opened, seconds / 4) async for name, step in _steps(opened, seconds)}
        finally:
            await _empty(opened)


async def _steps(store: Store, seconds: float) -> AsyncIterator[tuple[str, Step]]:
    """What is measured, one after the other: a quarter of the time each. What is taken was put there before."""
    yield "enqueue, one by one", lambda store: _enqueue(store, 1)
    yield "take + settle, one by one", lambda store: _work(store, 1)
    await _empty(store)
    yield f"enqueue, {BATCH} at once", lambda store: _enqueue(store, BATCH)
    yield f"take + settle, {BATCH} at once", lambda store: _work(store, BATCH)


async def _rate(step: Step, store: Store, seconds: float) -> float:
    """Jobs a second, until the time is over or there is nothing left to do."""
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds and count < MOST:
        done = await step(store)
        if not done:
            break
        count += done
    return count / (time.perf_counter() - begun)


async def _enqueue(store: Store, count: int) -> int:
    from accoda.model import NewJob

    return len(await store.enqueue([NewJob(QUEUE, PAYLOAD)] * count))


async def _work(store: Store, count: int) -> int:
    from accoda.model import Done

    jobs = await store.take(QUEUE, count, worker="bench")
    await store.settle([Done(job.lease) for job in jobs])
    return len(jobs)


async def _empty(store: Store) -> None:
    """Leave nothing behind, also what a bench that was killed left: in parts, so that others get through."""
    states: tuple[Any, ...] = ("ready", "taken")
    for state in states:
        while await store.purge(QUEUE, state, limit=1000):
            pass
