"""Where "now" comes from: the system, or a clock that tests move by hand.

Memory and SQLite read the clock of this process. Servers go by their own clock, never by a worker's: only tests give
them one, and then decide what the server takes for the present moment.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections.abc import Callable
from typing import Protocol

Cancel = Callable[[], None]


class Clock(Protocol):
    """Milliseconds since the epoch, and a way to be called when a moment has come."""

    def now(self) -> int:
        """The present moment in integer milliseconds."""
        ...

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        """Call `wake` once, on the running event loop, when `moment` has come. Returns what cancels it."""
        ...


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        return _Alarm(moment / 1000, wake, time.time).cancel


class MonotonicClock:
    """Milliseconds that pass on this machine, since no particular moment, whatever is done to its wall clock."""

    def now(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        return _Alarm(moment / 1000, wake, time.monotonic).cancel


EARLY = 0.001
"""Seconds: timers of event loops have whole milliseconds, and come up to one too early or too late."""


class _Alarm:
    """Calls when a moment of a clock has come, never before it, and hardly after it.

    The loop's timer is set for a bit earlier. The rest, about a millisecond, is passed turn by turn of the loop: that
    costs processor time, but only where something is due, and everything else on the loop goes on meanwhile.
    """

    __slots__ = ("_at", "_handle", "_loop", "_now", "_wake")

    def __init__(self, at: float, wake: Callable[[], None], now: Callable[[], float]) -> None:
        self._at = at
        self._now = now
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._wait(at - now())

    def cancel(self) -> None:
        self._handle.cancel()

    def _wait(self, left: float) -> asyncio.Handle:
        # Also where the clock was set back meanwhile: then it is far away again.
        return self._loop.call_later(left - EARLY, self._look) if left > EARLY else self._loop.call_soon(self._look)

    def _look(self) -> None:
        left = self._at - self._now()
        if left > 0:
            self._handle = self._wait(left)
        else:
            self._wake()


class ManualClock:
    """A clock that stands still until `advance`: tests of time take no time.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(2.5)
    >>> clock.now()
    3500
    """

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._sleepers: list[tuple[int, int, asyncio.AbstractEventLoop, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._count = 0

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time forward and wake everyone whose moment has come."""
        if seconds < 0:
            raise ValueError("time does not go backwards: pass seconds >= 0")
        with self._lock:
            self._now += round(seconds * 1000)
            due = []
            while self._sleepers and self._sleepers[0][0] <= self._now:
                due.append(heapq.heappop(self._sleepers))
        for _, number, loop, wake in due:
            if number not in self._cancelled and not loop.is_closed():
                loop.call_soon_threadsafe(wake)
            self._cancelled.discard(number)

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        loop = asyncio.get_running_loop()
        with self._lock:
            self._count += 1
            number = self._count
            if moment > self._now:
                heapq.heappush(self._sleepers, (moment, number, loop, wake))
                return lambda: self._cancelled.add(number)
        return loop.call_soon(wake).cancel
