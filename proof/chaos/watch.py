"""Looks at the counters while a run goes on: for the line of progress, and to see when nothing moves any more."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from accoda import QueueStats, StorageError, Store
from accoda.names import is_system


class Count(msgspec.Struct, frozen=True):
    """The counters of all queues together. `open` is what is not finished yet."""

    done: int = 0
    dead: int = 0
    ready: int = 0
    open: int = 0

    @property
    def finished(self) -> int:
        return self.done + self.dead


def users(queues: Mapping[str, QueueStats]) -> list[QueueStats]:
    """All but Accoda's own: the recorder's one job always waits for its next round."""
    return [stats for name, stats in queues.items() if not is_system(name)]


class Pace:
    """How far the machine's clock gets away from its monotonic one within a second, at the worst.

    A store goes by the first, a history by the second. A machine that was held up may let its clock run faster by half
    a percent until it is right again; then jobs start earlier than a history allows, and nothing is wrong.
    """

    def __init__(self, clock: Callable[[], int] = time.time_ns, steady: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._steady = steady
        self._seen: deque[tuple[int, int]] = deque()
        self.worst = 0.0  # seconds

    def look(self) -> None:
        """Several times a second."""
        now = self._steady()
        ahead = self._clock() - now
        while self._seen and self._seen[0][0] < now - 1_000_000_000:
            self._seen.popleft()
        self._seen.append((now, ahead))
        self.worst = max([self.worst, *(abs(ahead - before) / 1e9 for _, before in self._seen)])


class Watch:
    """`count` is what was last seen; `moved_at` when something was last finished (or there was nothing to do)."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.count = Count()
        self.moved_at = time.monotonic()

    async def look(self) -> bool:
        """Look once. False: the store does not answer."""
        try:
            async with asyncio.timeout(3):
                queues = users((await self.store.stats()).queues)
        except (StorageError, TimeoutError):
            return False
        count = Count(
            done=sum(queue.done for queue in queues),
            dead=sum(queue.dead for queue in queues),
            ready=sum(queue.ready for queue in queues),
            open=sum(queue.ready + queue.held + queue.delayed + queue.taken for queue in queues),
        )
        # Where all that is open is delayed (a retry, a quarantine), there is nothing to do either.
        if count.finished > self.count.finished or count.open == sum(queue.delayed for queue in queues):
            self.moved_at = time.monotonic()
        self.count = count
        return True

    async def run(self, every: float = 0.5) -> None:
        while True:
            with suppress(OSError):
                await self.look()
            await asyncio.sleep(every)

    @property
    def still_for(self) -> float:
        """Seconds for which nothing has moved."""
        return time.monotonic() - self.moved_at
