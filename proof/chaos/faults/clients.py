"""Clients that are in the middle of their calls when a fault strikes, and note what was acknowledged to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from accoda import Done, NewJob
from accoda.errors import StorageError
from accoda.storage.protocol import Store

T = TypeVar("T")


@dataclass
class Clients:
    """One producer and some workers that share a storage. Each goes on after every `StorageError`, and keeps it."""

    store: Store
    workers: int = 2
    queue: str = "work"
    lease: float = 2.0
    size: int = 50  # bytes in each job
    acknowledged: set[int] = field(default_factory=set)
    handled: set[int] = field(default_factory=set)  # taken, and its outcome was sent: from then on it may be gone
    errors: list[StorageError] = field(default_factory=list)
    longest: float = 0.0  # seconds of the call that took longest, errors included
    _stopped: bool = False
    _answered: Counter[str] = field(default_factory=Counter)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """They are at work inside, and have all ended after it."""
        tasks = [asyncio.create_task(self._produce())]
        tasks += [asyncio.create_task(self._work()) for _ in range(self.workers)]
        try:
            await self.go_on()
            yield
            self._stopped = True
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def go_on(self, times: int = 3) -> None:
        """Return when calls of every kind have been answered since this moment."""
        goal = self._answered + Counter(enqueue=times, take=times, settle=times)
        while any(self._answered[kind] < goal[kind] for kind in goal):
            self._news.clear()
            await self._news.wait()

    async def until_error(self) -> StorageError:
        """The next error."""
        count = len(self.errors)
        while len(self.errors) == count:
            self._news.clear()
            await self._news.wait()
        return self.errors[count]

    async def finish(self) -> None:
        """Handle all jobs that are left. What was acknowledged and is neither handled nor there was lost."""
        while (await self.store.stats()).queues[self.queue].total:
            await self.store.wait([self.queue], 1.0)
            await self._handle(100)
        lost = self.acknowledged - self.handled
        assert not lost, f"{len(lost)} of {len(self.acknowledged)} acknowledged jobs were lost"

    async def _produce(self) -> None:
        while not self._stopped:
            job = NewJob(self.queue, b"x" * self.size)
            answers = await self._try("enqueue", lambda job=job: self.store.enqueue([job] * 5))  # type: ignore[misc]
            self.acknowledged.update(answer.id for answer in answers or ())
            await asyncio.sleep(0.002)

    async def _work(self) -> None:
        while not self._stopped:
            await self._try("wait", lambda: self.store.wait([self.queue], 0.5))
            await self._handle(10)

    async def _handle(self, count: int) -> None:
        jobs = await self._try("take", lambda: self.store.take(self.queue, count, lease=self.lease))
        if not jobs:
            return
        outcomes = [Done(job.lease) for job in jobs]
        # Whatever the answer: it may have been applied before the answer was lost, and refused when it was repeated.
        self.handled.update(job.id for job in jobs)
        await self._try("settle", lambda: self.store.settle(outcomes))

    async def _try(self, kind: str, call: Callable[[], Awaitable[T]]) -> T | None:
        began = time.monotonic()
        try:
            answer = await call()
            self._answered[kind] += 1
            return answer
        except StorageError as error:
            self.errors.append(error)
            await asyncio.sleep(0.01)
            return None
        finally:
            self.longest = max(self.longest, time.monotonic() - began)
            self._news.set()
