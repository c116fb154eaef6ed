"""Those who wait for jobs, kept by the writer's thread, which looks for all of them.

    wait ──► one look ──nothing──► kept ──► looked for again: after our own commits to its queues,
                │                           after a commit of another process, when its moment has come
                └────────found───► True ◄──found──┘

The thread that hears of a change looks at once, and calls the event loop only for those who have something to take. If
it woke the waiters to look for themselves, each job would pay for two more changes of thread, and for every other
waiter.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence, Set

from accoda.clock import Cancel, Clock, SystemClock

Look = Callable[[Sequence[str]], tuple[bool, int | None]]
"""Asks the database: is something takable in one of these queues, and if not, when at the latest must we look again?"""

AT_LEAST_EACH = 1000  # ms: a process that was killed between its commit and its hint has told nobody
PAUSE = 0.001  # seconds between two looks for what others have done: a busy writer would wake us for every commit


class Lookout:
    """One who waits. `future` and `alarm` belong to `loop`; all else to the thread."""

    __slots__ = ("alarm", "future", "loop", "moment", "queues")

    def __init__(self, queues: Sequence[str]) -> None:
        self.queues = queues
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[bool] = self.loop.create_future()
        self.moment = 0
        self.alarm: Cancel | None = None

    def tell(self, found: bool | BaseException) -> None:
        """End the wait. Callable from any thread."""
        with contextlib.suppress(RuntimeError):  # that loop was closed: nobody waits there any more
            self.loop.call_soon_threadsafe(self.end, found)

    def end(self, found: bool | BaseException) -> None:
        """In its loop: end the wait, unless it has ended."""
        if self.future.done():
            return
        if isinstance(found, BaseException):
            self.future.set_exception(found)
        else:
            self.future.set_result(found)

    def leave(self) -> None:
        """In its loop: nobody waits any longer. The thread drops it when it comes by."""
        self.future.cancel()
        if self.alarm is not None:
            self.alarm()


class Lookouts:
    """All who wait. Used by the writer's thread only, but for `awaited`."""

    def __init__(self, clock: Clock, call: Callable[[Lookout], None]) -> None:
        self._clock = clock
        # A thread sleeps until a moment to the microsecond, an event loop to the millisecond. But only a loop can be
        # called by a clock that is not the system's: it then `call`s the thread.
        self._own_time = isinstance(clock, SystemClock)
        self._call = call
        self._waiting: list[Lookout] = []
        self._soonest = 0
        self._beat = clock.now()
        self._looked_at = 0.0

    @property
    def awaited(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def keep(self, lookout: Lookout, moment: int | None) -> None:
        """A look has found nothing for it, and nothing changes by itself before `moment`."""
        self._set_moment(lookout, moment)
        # Not twice: the look may be repeated, if the transaction in which it was failed for another call.
        self._stay([other for other in self._waiting if other is not lookout] + [lookout])

    def look(self, lookouts: Sequence[Lookout], look: Look, *, first: bool = False) -> bool:
        """Look for some of them, and tell those who have something to take. With `first`, stop at the one who has.

        True: it has stopped, and others were not looked for.
        """
        # The last first: a worker that just ran a job has begun to wait anew, and is the likeliest to get the next one.
        left = len(lookouts)
        for lookout in reversed(lookouts):
            left -= 1
            if lookout.future.done():
                continue
            found, moment = look(lookout.queues)
            if found:
                lookout.tell(True)
                if lookout in self._waiting:
                    self._waiting.remove(lookout)
                if first:
                    break
            else:
                self._set_moment(lookout, moment)
        self._stay(self._waiting)
        return left > 0

    def end(self, error: BaseException) -> None:
        """Tell everybody why there is nothing to wait for."""
        waiting, self._waiting = self._waiting, []
        for lookout in waiting:
            lookout.tell(error)

    def all(self) -> list[Lookout]:
        """Everybody; for them, others are looked at from now on after a pause only."""
        self._looked_at = time.monotonic()
        return list(self._waiting)

    def due(self) -> list[Lookout]:
        """Those whose moment has come."""
        if not self._own_time or not self._waiting:
            return []
        now = self._clock.now()
        return [lookout for lookout in self._waiting if lookout.moment <= now] if self._soonest <= now else []

    def of(self, queues: Set[str]) -> list[Lookout]:
        """Those who wait for one of these queues."""
        return [lookout for lookout in self._waiting if not queues.isdisjoint(lookout.queues)]

    def rest(self) -> float:
        """Seconds until the moment of one of them."""
        return max(0.0, self._soonest / 1000 - time.time()) if self._own_time else AT_LEAST_EACH / 1000

    def pause(self) -> float:
        """Seconds for which nobody looks for what others have done."""
        return max(0.0, self._looked_at + PAUSE - time.monotonic())

    def _stay(self, waiting: list[Lookout]) -> None:
        self._waiting = [each for each in waiting if not (each.future.done() or each.loop.is_closed())]
        self._soonest = min((lookout.moment for lookout in self._waiting), default=0)

    def _set_moment(self, lookout: Lookout, moment: int | None) -> None:
        # At the same beat for all of them, so that an idle thread wakes once a second, not once for each.
        now = self._clock.now()
        latest = now + AT_LEAST_EACH - (now - self._beat) % AT_LEAST_EACH
        moment = latest if moment is None else min(moment, latest)
        if moment != lookout.moment and not self._own_time:
            with contextlib.suppress(RuntimeError):  # that loop was closed
                lookout.loop.call_soon_threadsafe(self._set_alarm, lookout, moment)
        lookout.moment = moment

    def _set_alarm(self, lookout: Lookout, moment: int) -> None:
        """In the loop of one who waits."""
        if not lookout.future.done():
            if lookout.alarm is not None:
                lookout.alarm()
            lookout.alarm = self._clock.call_at(moment, lambda: self._call(lookout))
