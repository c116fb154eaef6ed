"""The loops of the demo, and how they end.

Two events end it. `closing`: no new jobs and no new crashes; the workers go on for a moment with the rest. `closed`:
every loop finishes its step and stops. No step is interrupted, so the totals agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from examples.demo.event_log import EventLog
from examples.demo.failures import Crasher, Reviver
from examples.demo.heartbeats import EVERY
from examples.demo.jobs import QUEUE, Producer
from examples.demo.snapshot import Sampler, Snapshot
from examples.demo.totals import Totals, read_totals
from examples.demo.work import Worker

from accoda.clock import Clock
from accoda.model import QueueStats
from accoda.storage.protocol import Store

DRAIN_FOR = 3.0


class Interrupts:
    """Signals to stop: the first stops gracefully, the second ends the draining, too."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def interrupt(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


class Demo:
    """All parts of the demo over one storage."""

    def __init__(self, storage: Store, clock: Clock) -> None:
        self.storage = storage
        self.log = EventLog()
        self.producer = Producer(storage, clock, self.log)
        self.workers = [Worker(name, storage, clock, self.log, asyncio.sleep) for name in ("ada", "bruno")]
        self.crasher = Crasher("carl", storage, clock, self.log)
        self.reviver = Reviver(storage, self.log)
        self.sampler = Sampler(storage, clock, self.log)

    async def idle(self) -> bool:
        """Whether nothing is ready or running and no late report is due. Delayed jobs may stay."""
        stats = (await self.storage.stats()).queues.get(QUEUE, QueueStats())
        return not (stats.ready or stats.taken or self.crasher.pending)


async def run_demo(
    demo: Demo, show: Callable[[Snapshot], None], show_every: float, seconds: float | None, interrupts: Interrupts
) -> Totals:
    """Run everything for `seconds` (None: until interrupted), drain, and read the totals."""
    closing, closed = asyncio.Event(), asyncio.Event()

    async def draw() -> None:
        show(await demo.sampler.run_once("draining" if closing.is_set() else "running"))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_every(0.15, demo.producer.run_once, closing))
        tasks.create_task(_every(2.5, demo.crasher.crash, closing))
        tasks.create_task(_every(4.0, demo.reviver.run_once, closing))
        tasks.create_task(_every(0.1, demo.crasher.report_late, closed))
        tasks.create_task(_every(show_every, draw, closed))
        for worker in demo.workers:
            tasks.create_task(_work(worker, demo.storage, closed))
            tasks.create_task(_every(EVERY, worker.heartbeat.beat, closed))
        await _nap(interrupts.first, seconds)
        closing.set()
        await _drain(demo, interrupts.second)
        closed.set()
    return await read_totals(demo.storage, demo.log)


async def _every(seconds: float, step: Callable[[], Awaitable[object]], stop: asyncio.Event) -> None:
    while not await _nap(stop, seconds):
        await step()


async def _work(worker: Worker, storage: Store, stop: asyncio.Event) -> None:
    while not stop.is_set():
        if not await worker.run_once():
            await storage.wait([QUEUE], 0.3)  # short, so that `stop` is seen soon


async def _drain(demo: Demo, hurry: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + DRAIN_FOR
    while loop.time() < end and not await demo.idle():
        if await _nap(hurry, 0.1):
            return


async def _nap(event: asyncio.Event, seconds: float | None) -> bool:
    """Sleep, but not longer than until the event; whether it is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
