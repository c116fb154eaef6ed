"""Takes nothing from a queue while the child processes that run its jobs cannot be started.

That is the worker's problem, not the jobs': one that was taken could only be given back. So the worker first starts a
child again, after pauses that grow, and takes when there is one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from accoda.errors import CannotStart
from accoda.queue_access import QueueAccess, Taken
from accoda.runtime.queue_service import QueueService

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds between two starts of a child, while they fail."""

log = logging.getLogger("accoda.worker")


class PoolAccess:
    """The access to a queue whose handler runs in child processes. `unblock` has the queues looked into again."""

    def __init__(self, service: QueueService, inner: QueueAccess, unblock: Callable[[Iterable[str]], None]) -> None:
        self._service = service
        self._inner = inner
        self._unblock = unblock
        self._pause = 0.0
        self._next_start = 0.0
        self._starting: asyncio.Task[None] | None = None
        self.began = inner.began
        self.settle = inner.settle
        self.enqueue = inner.enqueue
        self.forget = inner.forget

    async def take(
        self, count: int, settling: asyncio.Future[None] | None = None, max_cost: int | None = None
    ) -> Taken:
        if not self._service.problem:
            self._pause = 0.0
            return await self._inner.take(count, settling, max_cost)
        now = time.monotonic()
        if now >= self._next_start and (self._starting is None or self._starting.done()):
            # No await since the look: of several processors that come here, one starts a child.
            self._pause = min(LONGEST_PAUSE, 2 * self._pause or FIRST_PAUSE)
            self._next_start = now + self._pause
            # In a task: an import may take long, and a processor that waited for it would serve no other queue.
            self._starting = asyncio.create_task(self._start())
        return Taken(blocked_for=round(1000 * max(0.1, self._next_start - now)))

    async def _start(self) -> None:
        queue = self._service.queue
        try:
            for each in self._service.handlers:
                if each.runner.problem:
                    await each.runner.start()
        except CannotStart as error:
            log.error("%s is not served, the next start of a child is in %g s: %s", queue, self._pause, error)
            return
        log.info("%s is served again", queue)
        self._unblock([queue])
