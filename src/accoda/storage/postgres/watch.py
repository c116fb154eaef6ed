"""What one who waits has seen and heard of his queues, and what follows from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import cast

from accoda.clock import Clock
from accoda.storage.postgres.bell import Bell
from accoda.storage.postgres.calls import Calls
from accoda.storage.postgres.client import Client

LOOK_EVERY = 5_000  # ms: the longest that a lost notification can delay a job
LOOK_SOON = 10  # ms from the first careful look to the second
AHEAD = 0.8  # ms before a start at which to wake: timers keep to whole ms or so, and the rest is waited for exactly
NEAR = 2.0  # ms before a start from which it is waited for


class Watch:
    """Of one `wait`, which sleeps by `timer`."""

    def __init__(self, client: Client, bell: Bell, calls: Calls, timer: Clock, queues: Sequence[str]) -> None:
        self._client = client
        self._bell = bell
        self._calls = calls
        self._timer = timer
        self._queues = list(queues)
        self._heard: dict[str, tuple[int, int]] | None = None  # before the last look, if that saw no pause
        self._starts_at: float | None = None  # when a job starts, by that look
        self._careful_since: float | None = None

    async def look(self) -> tuple[bool, int | None]:
        """Whether something may be takable, and if not, when to look again at the latest."""
        if self._is_told() or await self._has_started():
            # Who has looked need not look again: that is one round trip less from an enqueue, or from a start time, to
            # a take. Perhaps another took the job: then the next wait looks.
            self._client.check()
            return True, None
        # Listening begins before the look, so that nothing falls between the two.
        await self._bell.listen()
        heard = {name: (self._bell.filled[name], self._bell.changed[name]) for name in self._queues}
        at, asked = self._calls.at(), self._now()
        # The timer's clock rounds down. What that leaves of a ms is made up for, or the nap would end early by it.
        began = self._timer.now() + (time.time_ns() % 1_000_000 / 1_000_000 if at is None else 0)
        if self._careful_since is None and self._calls.in_vain(self._queues):
            self._careful_since = asked
        args = (at, self._queues, self._careful_since is not None)
        ((takable, closed, due_in, starts),) = await self._client.fetch("look", *args, repeat=True)
        self._heard = None if closed else heard
        # A duration by the server's clock: how far this machine's clock is off does not matter. It began when that was
        # read: after the way to the server, which a take will have to go as well. So, counted from the middle of the
        # round trip, a take does not come too early. (A test's moment is that of the question: its clock may have been
        # moved since.)
        passed = (self._now() - asked) / 2 if at is None else 0
        nap = LOOK_EVERY if due_in is None else min(LOOK_EVERY, due_in)
        self._starts_at = asked + passed + due_in if starts else None
        if starts and at is None and nap == due_in:
            nap = max(0.0, nap - AHEAD)
        if self._careful_since is not None:
            # Takes have passed over what is locked, and so did this look. Whoever has it locked need not tell when he
            # lets go of it: a rerank does not, nor does a rollback, and the news of a commit can be heard a moment
            # before its locks are gone. So look again soon, and then after as long as it has been by now: a job is seen
            # when it has waited twice as long as it was locked, and a lock that stays for hours costs one look in five
            # seconds.
            self._starts_at = None
            nap = min(nap, max(LOOK_SOON, asked - self._careful_since))
        return takable, cast(int, began + passed + nap)  # a fraction of a ms is as good

    def _is_told(self) -> bool:
        """Whether a job became ready since the look, in a queue that was open."""
        filled = self._bell.filled
        return self._heard is not None and any(filled[name] > before for name, (before, _) in self._heard.items())

    async def _has_started(self) -> bool:
        """Whether the moment has come at which a job starts, and nothing was heard since of what may have become of it.

        One that is near is waited for, turn by turn of the loop: no timer is as exact, and whoever else has something
        to do in this loop does it meanwhile.
        """
        near = NEAR if self._calls.at() is None else 1  # a test's clock stands still
        if self._starts_at is None or self._heard is None or self._starts_at - self._now() >= near:
            return False
        while self._starts_at > self._now():  # noqa: ASYNC110 - an event needs a timer
            await asyncio.sleep(0)
        changed = self._bell.changed
        return all(changed[name] == before for name, (_, before) in self._heard.items())

    def _now(self) -> float:
        """To a fraction of a ms, and whatever somebody does to this machine's clock; or as a test says."""
        at = self._calls.at()
        return time.monotonic_ns() / 1_000_000 if at is None else at
