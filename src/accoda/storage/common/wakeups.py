"""Wakes callers that sleep in `wait`.

`WakeUps` is for every storage: it wakes by queue, from any thread and for any event loop. `HintedWakeUps` adds what
storages on a server have in common: the server tells each client which queues have changed. Such a hint is only a hint.
It can be lost with its connection, so a caller is subscribed before it looks, everyone looks again after a reconnect,
and at least every `LOOK_EVERY`: a lost hint costs seconds, never a job.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, cast

from accoda.clock import Clock, MonotonicClock

Check = Callable[[], Awaitable[tuple[bool, int | None]]]
"""Asks the store: is something takable now, and if not, when at the latest must it be asked again?"""

LOOK_EVERY = 5_000  # ms


class WakeUps:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Dicts, not sets: sleepers are woken in the order in which they came, so that runs can be repeated.
        self.sleepers: dict[_Sleeper, None] = {}
        self._by_queue: dict[str, dict[_Sleeper, None]] = {}

    @property
    def awaited(self) -> bool:
        """Whether anyone sleeps."""
        return bool(self.sleepers)

    def wake(self, queues: Collection[str] | None = None) -> None:
        """Wake the callers that wait for one of `queues` (None: all of them). They look at the store, then sleep on."""
        if not self.sleepers:
            return
        if queues is None:
            with self._lock:
                for sleeper in self.sleepers:
                    sleeper.wake()
            return
        for queue in queues:
            # Most sleepers wait for other queues. Read without the lock: a caller that is not in there yet looks at the
            # store once it is, and what this wake-up is about is already stored.
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
                # Cleared before the look: a wake-up during or after it ends the next sleep. The other way round, a job
                # that came between the look and the clear would be slept through.
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
            self.sleepers[sleeper] = None
            for queue in sleeper.queues:
                self._by_queue.setdefault(queue, {})[sleeper] = None

    def _discard(self, sleeper: _Sleeper) -> None:
        with self._lock:
            self.sleepers.pop(sleeper, None)
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
            self.event.set()  # directly: another turn of the loop is time that a job waits
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.event.set)

    async def sleep(self, clock: Clock, until: int) -> None:
        cancel = clock.call_at(until, self.event.set)
        try:
            await self.event.wait()
        finally:
            cancel()


class Seen(NamedTuple):
    """What a look at the store found."""

    takable: bool
    due_in: float | None = None
    """ms until something is due by itself, by the server's clock: a length, so this machine's clock does not matter."""
    starts: bool = False
    """Whether that is the start of a job, unless something changes. (A lease that ends is mostly settled before.)"""
    paused: bool = False
    """Whether one of the queues is paused: then a job that is ready there is no reason to wake."""


class HintedWakeUps(WakeUps):
    """Hints from a server, and the waits of one storage. Used in that storage's event loop only.

    The engine calls `hear` for each hint, and `wake` when its connection was lost or is back.
    """

    def __init__(self, clock: Clock | None) -> None:
        """`clock` is for tests, which move the time."""
        super().__init__()
        self._clock = clock or MonotonicClock()
        self._is_real = clock is None
        self._heard_ready: Counter[str] = Counter()
        self._heard: Counter[str] = Counter()

    def hear(self, queue: str, *, ready: bool) -> None:
        """Something changed in a queue. `ready`: a job is ready there, and the queue is not paused."""
        self._heard[queue] += 1
        if ready:
            self._heard_ready[queue] += 1
        self.wake((queue,))

    async def wait_for_hints(
        self, queues: Collection[str], timeout: float, look: Callable[[], Awaitable[Seen]]
    ) -> bool:
        """The verb `wait`. `look` subscribes to the queues where that is not done yet, and then looks at the store."""
        before: list[tuple[str, int, int]] = []  # what had been heard of each queue before the last look
        starts_at: float | None = None  # when a job starts, by that look

        def is_ready() -> bool:
            # A job became ready since the look, or the start time has come that the look told of and nothing changed
            # since. No second look then: that saves a round trip between an enqueue and its take. If another taker was
            # faster, the take finds nothing, and the next wait looks.
            if any(self._heard_ready[queue] > ready for queue, ready, _ in before):
                return True
            if starts_at is None or starts_at - self._now() > 0.1:
                return False
            return all(self._heard[queue] == count for queue, _, count in before)

        async def check() -> tuple[bool, int | None]:
            nonlocal before, starts_at
            if is_ready():
                return True, None
            heard = [(queue, self._heard_ready[queue], self._heard[queue]) for queue in queues]
            asked = self._now()
            seen = await look()
            # The server read its clock about half a round trip ago, and a take needs the other half to get there. (A
            # test's moment is that of the question.)
            now = (asked + self._now()) / 2 if self._is_real else asked
            due_in = LOOK_EVERY if seen.due_in is None else seen.due_in
            before = [] if seen.paused else heard
            starts_at = now + due_in if seen.starts and not seen.paused else None
            return seen.takable, cast(int, now + min(LOOK_EVERY, due_in))  # the clocks take fractions of a ms as well

        return await self.wait(self._clock, queues, timeout, check)

    def _now(self) -> float:
        """To a fraction of a ms."""
        return time.monotonic_ns() / 1_000_000 if self._is_real else self._clock.now()
