"""Which queue a free processor serves next: round robin over the queues that may have jobs.

A queue is *awake* while it may have jobs, and *asleep* once a take found fewer than it asked for. Those that sleep wait
together, a dormitory of up to 64 in one `wait` of the storage: fifty empty queues cost as much as one, and a job for
one of a thousand disturbs those in its dormitory only.

            take found fewer than asked
    awake ─────────────────────────────► asleep ──wait──► woken ──pick──► probed
      ▲                                     ▲                               │
      └──────────────── take was full ──────┴──── take found fewer ─────────┘

A queue that was woken is probed by one processor first: eight free processors do not all run for one job.

A queue whose head cannot be paid yet is *held* until a moment: it has jobs, so the common wait would come back at once,
and is left out of it. A timer, or tokens that came back, make it *woken*.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum

from accoda.clock import Cancel, Clock

DORMITORY = 64
"""Queues that wait together at most."""
SOON = 0.002
"""Seconds before a queue that just gave jobs joins the common wait: most often its processor is back sooner."""
SHORTEST_HOLD = 5
"""Milliseconds that a queue is held at least."""


class _Sleep(Enum):
    AWAKE = 0
    ASLEEP = 1
    WOKEN = 2
    PROBED = 3
    HELD = 4


class Dormitory:
    """Queues that sleep together. `fell_asleep`: one more sleeps, and wants to be waited for."""

    def __init__(self) -> None:
        self.lines: dict[str, _Line] = {}
        self.fell_asleep = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None

    def asleep(self) -> list[str]:
        """The queues that wait together."""
        return [queue for queue, line in self.lines.items() if line.state is _Sleep.ASLEEP]

    def join(self, *, at_once: bool) -> None:
        if at_once:
            self.fell_asleep.set()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._join_now)

    def _join_now(self) -> None:
        self._soon = None
        self.fell_asleep.set()


class _Line:
    __slots__ = ("busy", "cap", "dormitory", "limit", "state", "timer")

    def __init__(self, dormitory: Dormitory) -> None:
        self.dormitory = dormitory
        self.state = _Sleep.WOKEN
        self.busy = 0
        self.limit: int | None = None
        self.cap: int | None = None
        self.timer: Cancel | None = None

    def end_hold(self) -> None:
        if self.timer is not None:
            self.timer()
            self.timer = None


class Rotation:
    """Hands out turns. Belongs to one event loop; nothing in it awaits, so no lock is needed."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._order = list(dict.fromkeys(queues))
        self._lines: dict[str, _Line] = {}
        self.dormitories: list[Dormitory] = []
        for first in range(0, len(self._order), DORMITORY):
            self.dormitories.append(dormitory := Dormitory())
            dormitory.lines = {queue: _Line(dormitory) for queue in self._order[first : first + DORMITORY]}
            self._lines |= dormitory.lines
        self._next = 0
        self._resting: deque[asyncio.Future[None]] = deque()
        self.quiet = asyncio.Event()
        self.last_take = time.monotonic()

    @property
    def queues(self) -> list[str]:
        return list(self._order)

    def pick(self, last: str | None = None, *, carries: bool = False) -> str | None:
        """The next queue in turn, for a processor that served `last` and is free now; None: all sleep.

        A processor that `carries` outcomes goes to the store in any case: if nothing is awake, it looks into `last`
        again, which costs no round trip of its own.
        """
        if last is not None:
            self.leave(last)
        queue = self._turn(lend=False) or self._turn(lend=True)
        if queue is not None:
            return queue
        if last is not None and carries:
            self._lines[last].busy += 1
            return last
        if self.idle:
            self.quiet.set()
        return None

    def _turn(self, *, lend: bool) -> str | None:
        """The next open queue within its share; with `lend`, within its cap: no processor stands idle beside jobs."""
        count = len(self._order)
        for step in range(count):
            index = (self._next + step) % count
            line = self._lines[self._order[index]]
            most = line.cap if lend else line.limit
            if line.state in _OPEN and (most is None or line.busy < most):
                self._next = (index + 1) % count
                if line.state is _Sleep.WOKEN:
                    line.state = _Sleep.PROBED
                line.busy += 1
                return self._order[index]
        return None

    def leave(self, queue: str) -> None:
        """A processor serves this queue no longer."""
        self._lines[queue].busy -= 1

    def report(self, queue: str, asked: int, got: int) -> None:
        """What a take found."""
        self.last_take = time.monotonic()
        line = self._lines[queue]
        if got >= asked:
            if line.state is not _Sleep.AWAKE:
                line.state = _Sleep.AWAKE
                self.ring()
        elif line.state is not _Sleep.ASLEEP:
            # A wake-up that arrives between the take and this line is not lost: `wait` looks before it sleeps.
            line.state = _Sleep.ASLEEP
            line.dormitory.join(at_once=got == 0)

    def hold(self, queue: str, moment: int, clock: Clock) -> None:
        """Nothing of this queue can be paid before `moment`, by that clock. Give it no turn until then.

        It is not idle work either: for a worker that ends when nothing is left to start, it sleeps.
        """
        line = self._lines[queue]
        line.end_hold()
        line.state = _Sleep.HELD
        self.last_take = time.monotonic()  # somebody has looked: a queue that waits for its budget is no stall
        # Never in the past: a wake-up in this very moment, and a look that holds it again, would go round for ever.
        line.timer = clock.call_at(max(moment, clock.now() + SHORTEST_HOLD), lambda: self.release([queue]))

    def release(self, queues: Iterable[str]) -> None:
        """Look into these queues again, those of them that are held."""
        for queue in queues:
            line = self._lines.get(queue)
            if line is not None and line.state is _Sleep.HELD:
                line.end_hold()
                line.state = _Sleep.WOKEN
        self.ring()

    def held(self) -> list[str]:
        """The queues that wait for a budget."""
        return [queue for queue, line in self._lines.items() if line.state is _Sleep.HELD]

    def wake(self, queues: Iterable[str]) -> None:
        """These queues may have jobs. Each is probed by one processor, so one is called for each."""
        woken = 0
        for queue in queues:
            line = self._lines[queue]
            if line.state is _Sleep.ASLEEP:
                line.state = _Sleep.WOKEN
                woken += 1
        self._call(woken)

    def asleep(self) -> list[str]:
        """The queues that wait for jobs."""
        return [queue for dormitory in self.dormitories for queue in dormitory.asleep()]

    def limit(self, caps: Mapping[str, int | None], shares: Mapping[str, int] | None = None) -> None:
        """How many processors each queue may have at once; None, or not named: any number. Never less than one.

        With `shares`, the queues within their share come first; only where none of them has jobs, the others do.
        """
        for queue, line in self._lines.items():
            line.cap = _at_least_one(caps.get(queue))
            share = None if shares is None else shares.get(queue)
            line.limit = line.cap if share is None else _at_least_one(min(share, line.cap or share))
        self.ring()

    def busy(self, queue: str) -> int:
        """How many processors serve a queue."""
        return self._lines[queue].busy

    @property
    def idle(self) -> bool:
        """Whether every queue sleeps or waits for tokens, and no processor is at work: nothing is left to start."""
        return all(line.state in _CLOSED and not line.busy for line in self._lines.values())

    async def rest(self) -> None:
        """Until there may be something to pick."""
        called = asyncio.get_running_loop().create_future()
        self._resting.append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self._call(1)  # called, but ended before it could come: another one shall
            raise

    def _call(self, processors: int) -> None:
        """Call so many of those who rest. Those who do not will pick by themselves before they rest."""
        while processors > 0 and self._resting:
            called = self._resting.popleft()
            if not called.done():
                called.set_result(None)
                processors -= 1

    def close(self) -> None:
        """The worker leaves: no timer shall ring."""
        for line in self._lines.values():
            line.end_hold()

    def restart(self) -> None:
        """After the connection was made anew: look into every queue again."""
        self.wake(self._order)
        for dormitory in self.dormitories:
            dormitory.fell_asleep.set()

    def ring(self) -> None:
        """Wake every processor that rests, to look around."""
        self._call(len(self._resting))


def _at_least_one(limit: int | None) -> int | None:
    return None if limit is None else max(1, limit)


_OPEN = (_Sleep.AWAKE, _Sleep.WOKEN)
_CLOSED = (_Sleep.ASLEEP, _Sleep.HELD)
