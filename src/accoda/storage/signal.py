"""Wakes those who sleep in `wait`, from any thread and for any event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection

from accoda.clock import Clock

Check = Callable[[], Awaitable[tuple[bool, int | None]]]
"""Asks the store: is something takable now, and if not, when at the latest must we look again?"""


class Signal:
    """A bell with a name for each queue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Dicts, not sets: those who sleep are woken in the order in which they came, in every run.
        self._sleepers: dict[_Sleeper, None] = {}
        self._by_queue: dict[str, dict[_Sleeper, None]] = {}

    @property
    def awaited(self) -> bool:
        """Whether anybody sleeps at all."""
        return bool(self._sleepers)

    def ring(self, queues: Collection[str] | None = None) -> None:
        """Wake those who wait for one of `queues` (None: everybody)."""
        if not self._sleepers:
            return
        if queues is None:
            with self._lock:
                for sleeper in self._sleepers:
                    sleeper.wake()
            return
        for queue in queues:
            # Those who sleep mostly wait for other queues. Looked at without the lock: who is not in there yet will
            # look at the store after he is, and what this ring is about is stored already.
            if queue in self._by_queue:
                with self._lock:
                    for sleeper in self._by_queue.get(queue, ()):
                        sleeper.wake()

    async def wait(self, clock: Clock, queues: Collection[str], timeout: float, check: Check) -> bool:
        """Sleep until `check` says that something is takable (True) or the timeout is over (False)."""
        deadline = clock.now() + round(timeout * 1000)
        sleeper = _Sleeper(queues)
        self._add(sleeper)
        try:
            while True:
                # Cleared before the look: a bell that rings during or after it is heard by the next sleep. The other
                # way round, a job that came between the look and the clear would be slept through.
                sleeper.event.clear()
                takable, look_again_at = await check()
                if takable:
                    return True
                if clock.now() >= deadline:
                    return False
                await sleeper.sleep(clock, deadline if look_again_at is None else min(deadline, look_again_at))
        finally:
            self._discard(sleeper)

    def _add(self, sleeper: _Sleeper) -> None:
        with self._lock:
            self._sleepers[sleeper] = None
            for queue in sleeper.queues:
                self._by_queue.setdefault(queue, {})[sleeper] = None

    def _discard(self, sleeper: _Sleeper) -> None:
        with self._lock:
            self._sleepers.pop(sleeper, None)
            for queue in sleeper.queues:
                others = self._by_queue.get(queue)
                if others is not None:
                    others.pop(sleeper, None)
                    if not others:
                        del self._by_queue[queue]


class _Sleeper:
    def __init__(self, queues: Collection[str]) -> None:
        self.queues = frozenset(queues)
        self.event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def wake(self) -> None:
        if threading.get_ident() == self._thread:
            self.event.set()  # at once: a turn of the loop is time that a job waits
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.event.set)

    async def sleep(self, clock: Clock, until: int) -> None:
        cancel = clock.call_at(until, self.event.set)
        try:
            await self.event.wait()
        finally:
            cancel()
