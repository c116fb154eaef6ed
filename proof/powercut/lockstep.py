"""Runs a real storage, with its thread, so that the same calls always give the same transactions.

Which calls share a commit depends on when the storage's thread looks. Here it looks when it is told: between rounds the
thread is held inside a call that only reads, at the moment when it asks its clock for the time. All calls of a round
are put behind it, then it is let go, and finds them all.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from accoda.clock import Cancel
from accoda.storage.protocol import Store
from accoda.storage.sqlite.storage import SqliteStorage

PATIENCE = 60.0  # seconds after which the harness itself must be broken
StoreFunction = Callable[[Store], Coroutine[Any, Any, Any]]


class Time:
    """One moment for all clocks of a run."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now


class HeldClock:
    """A storage's clock; the next caller after `hold` stays inside until `let_go`."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._holding = False
        self._arrived = threading.Semaphore(0)
        self._go = threading.Semaphore(0)

    def now(self) -> int:
        if self._holding:
            self._holding = False
            self._arrived.release()
            self._go.acquire()
        return self._time.now

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        raise NotImplementedError("no call of a power-cut run waits for a moment")

    def hold(self) -> None:
        self._holding = True

    def until_held(self) -> None:
        if not self._arrived.acquire(timeout=PATIENCE):
            raise RuntimeError("the storage's thread did not ask for the time")

    def let_go(self) -> None:
        self._go.release()


class Handle:
    """A storage whose thread works only during `run`."""

    def __init__(self, store: Store, clock: HeldClock) -> None:
        self.store = store
        self._clock = clock
        self._plug: asyncio.Task[Any] | None = None

    async def hold(self) -> None:
        # Nothing is under way, so the next to ask for the time is this read. A transaction that only reads takes no
        # lock before its first statement: while it is held here, other storages may write.
        self._clock.hold()
        self._plug = asyncio.create_task(self.store.read("held"))
        await asyncio.sleep(0)
        self._clock.until_held()

    async def run(self, calls: Sequence[StoreFunction]) -> list[Any]:
        """All of them in one transaction; an answer or an error for each."""
        tasks = [asyncio.create_task(call(self.store)) for call in calls]
        await asyncio.sleep(0)  # each has put its call in the line and waits
        await self._let_go()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        await self.hold()
        return answers

    def sync(self) -> None:
        """Bring to the disk what looks have changed. Its thread is held, and does not mind."""
        assert isinstance(self.store, SqliteStorage)
        self.store._writer.log.sync()

    async def close(self) -> None:
        await self._let_go()
        await self.store.close()

    async def _let_go(self) -> None:
        if self._plug is not None:
            plug, self._plug = self._plug, None
            self._clock.let_go()
            await asyncio.gather(plug, return_exceptions=True)
