"""Which queue a free processor serves next: round robin over the queues that may have jobs.

A queue is *awake* while it may have jobs, and *asleep* once a take found fewer than it asked for. Those that sleep wait
together, a group of up to 64 in one `wait` of the storage: fifty empty queues cost as much as one, and a job for one of
a thousand disturbs those in its group only.

            take found fewer than asked
    awake ─────────────────────────────► asleep ──wait──► woken ──pick──► probed
      ▲                                     ▲                               │
      └──────────────── take was full ──────┴──── take found fewer ─────────┘

A queue that was woken is probed by one processor first: eight free processors do not all run for one job.

A queue whose head cannot be paid for yet is *blocked* until a moment: it has jobs, so the common wait would come back
at once, and is left out of it. A timer, or tokens that came back, make it *woken*.

A queue that is left to other workers (the manager gave them processors for it, and this worker none) is blocked in the
same way for a moment when it gets jobs. The others have taken them by then; if they have not, this worker does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterable, Mapping
from enum import Enum

from accoda.clock import Cancel, Clock

GROUP = 64
"""Queues that wait together at most."""
SOON = 0.002
"""Seconds before a queue that just gave jobs joins the common wait: most often its processor is back sooner."""
LEFT_FOR = 0.1
"""Seconds for which jobs are left to the workers that were given their queue."""
SHORTEST_BLOCK = 5
"""Milliseconds for which a queue is blocked at least."""


class _State(Enum):
    AWAKE = 0
    ASLEEP = 1
    WOKEN = 2
    PROBED = 3
    BLOCKED = 4


_OPEN = (_State.AWAKE, _State.WOKEN)
_CLOSED = (_State.ASLEEP, _State.BLOCKED)


class WaitGroup:
    """Queues that sleep together. `fell_asleep`: one more sleeps, and is to be waited for."""

    def __init__(self) -> None:
        self.queues: dict[str, _QueueTurns] = {}
        self.fell_asleep = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None

    def asleep(self) -> list[str]:
        """The queues that wait together."""
        return [name for name, queue in self.queues.items() if queue.state is _State.ASLEEP]

    def join(self, *, at_once: bool) -> None:
        if at_once:
            self.fell_asleep.set()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._join_now)

    def _join_now(self) -> None:
        self._soon = None
        self.fell_asleep.set()


class _QueueTurns:
    """One queue: `busy` processors serve it. `cap` is how many may, `share` how many should while others have jobs."""

    __slots__ = ("busy", "cap", "group", "share", "state", "timer")

    def __init__(self, group: WaitGroup) -> None:
        self.group = group
        self.state = _State.WOKEN
        self.busy = 0
        self.share: int | None = None
        self.cap: int | None = None
        self.timer: Cancel | None = None

    def end_timer(self) -> None:
        if self.timer is not None:
            self.timer()
            self.timer = None


class Rotation:
    """Hands out turns. Belongs to one event loop; nothing in it awaits, so no lock is needed."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._order = list(dict.fromkeys(queues))
        self._queues: dict[str, _QueueTurns] = {}
        self.groups: list[WaitGroup] = []
        for first in range(0, len(self._order), GROUP):
            self.groups.append(group := WaitGroup())
            group.queues = {queue: _QueueTurns(group) for queue in self._order[first : first + GROUP]}
            self._queues |= group.queues
        self._next = 0
        self.left: frozenset[str] = frozenset()
        """The queues that are left to other workers."""
        self.resting: dict[asyncio.Future[None], None] = {}
        """Those of processors that have nothing to do, in the order of their coming: `call_all` ends them."""
        self.quiet = asyncio.Event()
        self.last_take = time.monotonic()
        self.only: str | None = None
        """The queue that has jobs while no other may have any: its processors stay with it, and need not ask. Whatever
        lets another queue have a turn sets it to None."""

    def pick(self, mine: Container[str] = (), has_room: Callable[[str], bool] = lambda queue: True) -> str | None:
        """The next queue in turn for a processor that serves `mine` already; None: there is none that may have jobs and
        for which it has room."""
        return self._turn(mine, has_room, lend=False) or self._turn(mine, has_room, lend=True)

    def _turn(self, mine: Container[str], has_room: Callable[[str], bool], *, lend: bool) -> str | None:
        """The next open queue within its share; with `lend`, within its cap: no processor is idle beside jobs."""
        count = len(self._order)
        for step in range(count):
            index = (self._next + step) % count
            name = self._order[index]
            queue = self._queues[name]
            most = queue.cap if lend else queue.share
            if (
                queue.state in _OPEN
                and (most is None or queue.busy < most or (name in mine and queue.busy <= most))
                and has_room(name)
            ):
                self._next = (index + 1) % count
                if queue.state is _State.WOKEN:
                    queue.state = _State.PROBED
                return name
        return None

    def enter(self, queue: str) -> None:
        """One more processor serves this queue."""
        self._queues[queue].busy += 1

    def leave(self, queue: str) -> None:
        """A processor serves this queue no longer."""
        self._queues[queue].busy -= 1
        if self.idle:
            self.quiet.set()

    def report(self, name: str, *, more: bool, found: bool) -> None:
        """A take `found` jobs, and there may be `more` at once."""
        self.last_take = time.monotonic()
        queue = self._queues[name]
        if more:
            if queue.state is not _State.AWAKE:
                queue.state = _State.AWAKE
                self.call_all()
            others_sleep = all(other is queue or other.state in _CLOSED for other in self._queues.values())
            self.only = name if others_sleep else None
        elif queue.state is not _State.ASLEEP:
            self.only = None
            # A wake-up that arrives between the take and this line is not lost: `wait` looks before it sleeps.
            queue.state = _State.ASLEEP
            queue.group.join(at_once=not found)

    def block(self, name: str, moment: int, clock: Clock) -> None:
        """Nothing of this queue can be taken before `moment`, by that clock. Give it no turn until then.

        A worker that ends when nothing is left to start counts it as asleep.
        """
        queue = self._queues[name]
        queue.end_timer()
        queue.state = _State.BLOCKED
        self.only = None
        self.last_take = time.monotonic()  # the store has answered: a queue that waits for its budget is no stall
        # Never in the past: a wake-up in this very moment, and a look that blocks it again, would go round for ever.
        queue.timer = clock.call_at(max(moment, clock.now() + SHORTEST_BLOCK), lambda: self.unblock([name]))

    def unblock(self, names: Iterable[str]) -> None:
        """Look into these queues again, those of them that are blocked."""
        for name in names:
            queue = self._queues.get(name)
            if queue is not None and queue.state is _State.BLOCKED:
                queue.end_timer()
                queue.state = _State.WOKEN
                self.only = None
        self.call_all()

    def blocked(self) -> list[str]:
        """The queues that wait for a budget."""
        return [name for name, queue in self._queues.items() if queue.state is _State.BLOCKED]

    def wake(self, names: Iterable[str]) -> None:
        """These queues may have jobs. Each is probed by one processor, by the first that has room."""
        for name in names:
            queue = self._queues[name]
            if queue.state is _State.ASLEEP:
                if name in self.left:
                    queue.state = _State.BLOCKED
                    queue.timer = asyncio.get_running_loop().call_later(LEFT_FOR, self.unblock, [name]).cancel
                    continue
                queue.state = _State.WOKEN
                self.only = None
        self.call_all()

    def leave_to_others(self, names: Iterable[str]) -> None:
        """Leave the jobs of these queues to other workers, and those of no other queue.

        That is safe whatever became of those workers: a job that none of them took in `LEFT_FOR` seconds is taken here,
        and from then on the queue has its turns here as well, until a take finds fewer jobs than it asked for.
        """
        before, self.left = self.left, frozenset(names)
        for name in self.left - before:
            queue = self._queues[name]
            if queue.state in _OPEN:
                queue.state = _State.ASLEEP
                queue.group.join(at_once=True)
                self.only = None
        if back := before - self.left:
            self.unblock(back)

    def asleep(self) -> list[str]:
        """The queues that wait for jobs."""
        return [queue for group in self.groups for queue in group.asleep()]

    def limit(self, caps: Mapping[str, int | None], shares: Mapping[str, int] | None = None) -> None:
        """How many processors each queue may have at once; None, or not named: any number. Never less than one.

        With `shares`, the queues within their share come first; only where none of them has jobs, the others do.
        """
        for name, queue in self._queues.items():
            queue.cap = _at_least_one(caps.get(name))
            share = None if shares is None else shares.get(name)
            queue.share = queue.cap if share is None else _at_least_one(min(share, queue.cap or share))
        self.only = None
        self.call_all()

    def busy(self, queue: str) -> int:
        """How many processors serve a queue."""
        return self._queues[queue].busy

    @property
    def idle(self) -> bool:
        """Whether every queue sleeps or is blocked, and no processor is at work: nothing is left to start."""
        return all(queue.state in _CLOSED and not queue.busy for queue in self._queues.values())

    def call_all(self) -> None:
        """Call every processor that rests, to look around. Those that do not will pick before they rest."""
        resting, self.resting = self.resting, {}
        for called in resting:
            if not called.done():
                called.set_result(None)

    def close(self) -> None:
        """The worker leaves: end the timers."""
        for queue in self._queues.values():
            queue.end_timer()

    def restart(self) -> None:
        """After the connection was made anew: look into every queue again."""
        self.wake(self._order)
        for group in self.groups:
            group.fell_asleep.set()


def _at_least_one(limit: int | None) -> int | None:
    return None if limit is None else max(1, limit)
