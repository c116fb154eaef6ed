"""The loops of the demo, and how they end.

Two signals end it. `closing`: no new jobs, no new crashes; the workers go on for a moment with what is there.
`closed`: everybody finishes the step at hand and stops. No step is ever cut in the middle, so the books balance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from accoda.clock import Clock
from accoda.demo.account import Account, take_account
from accoda.demo.jobs import QUEUE, Producer
from accoda.demo.journal import Journal
from accoda.demo.pulse import EVERY
from accoda.demo.snapshot import Camera, Snapshot
from accoda.demo.trouble import Caretaker, Crasher
from accoda.demo.work import Worker
from accoda.model import QueueStats
from accoda.storage.protocol import Store

DRAIN_FOR = 3.0


class Interrupts:
    """Wishes to stop: the first one ends politely, a second one ends the draining too."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def strike(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


class Stage:
    """All parts of the demo over one storage."""

    def __init__(self, storage: Store, clock: Clock) -> None:
        self.storage = storage
        self.journal = Journal()
        self.producer = Producer(storage, clock, self.journal)
        self.workers = [Worker(name, storage, clock, self.journal, asyncio.sleep) for name in ("ada", "bruno")]
        self.crasher = Crasher("carl", storage, clock, self.journal)
        self.caretaker = Caretaker(storage, self.journal)
        self.camera = Camera(storage, clock, self.journal)

    async def idle(self) -> bool:
        """Whether nothing is ready or running and no late report is to come. Delayed jobs may stay."""
        stats = (await self.storage.stats()).queues.get(QUEUE, QueueStats())
        return not (stats.ready or stats.taken or self.crasher.pending)


async def perform(
    stage: Stage, show: Callable[[Snapshot], None], show_every: float, seconds: float | None, interrupts: Interrupts
) -> Account:
    """Run everything for `seconds` (None: until interrupted), drain, and close the books."""
    closing, closed = asyncio.Event(), asyncio.Event()

    async def picture() -> None:
        show(await stage.camera.run_once("draining" if closing.is_set() else "running"))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_every(0.15, stage.producer.run_once, closing))
        tasks.create_task(_every(2.5, stage.crasher.crash, closing))
        tasks.create_task(_every(4.0, stage.caretaker.run_once, closing))
        tasks.create_task(_every(0.1, stage.crasher.report_late, closed))
        tasks.create_task(_every(show_every, picture, closed))
        for worker in stage.workers:
            tasks.create_task(_work(worker, stage.storage, closed))
            tasks.create_task(_every(EVERY, worker.pulse.beat, closed))
        await _nap(interrupts.first, seconds)
        closing.set()
        await _drain(stage, interrupts.second)
        closed.set()
    return await take_account(stage.storage, stage.journal)


async def _every(seconds: float, step: Callable[[], Awaitable[object]], stop: asyncio.Event) -> None:
    while not await _nap(stop, seconds):
        await step()


async def _work(worker: Worker, storage: Store, stop: asyncio.Event) -> None:
    while not stop.is_set():
        if not await worker.run_once():
            await storage.wait([QUEUE], 0.3)  # short, so that `stop` is seen soon


async def _drain(stage: Stage, hurry: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + DRAIN_FOR
    while loop.time() < end and not await stage.idle():
        if await _nap(hurry, 0.1):
            return


async def _nap(event: asyncio.Event, seconds: float | None) -> bool:
    """Sleep so long, or until the event; whether it has come."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
