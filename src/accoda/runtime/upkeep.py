"""What a worker does again and again beside its jobs. Each chore is a function; this is the only loop."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger("accoda.worker")

Chore = Callable[[], Awaitable[None]]


class Upkeep:
    """Starts chores together and ends them together."""

    def __init__(self) -> None:
        self._waiting: list[Coroutine[Any, Any, None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, seconds: float, chore: Chore, *, at_once: bool = False) -> None:
        """Call `chore` every so many seconds. What it raises is logged, and does not end it."""
        self.add(_again(seconds, chore, at_once))

    def add(self, chore: Coroutine[Any, Any, None]) -> None:
        """Run `chore` until it ends, or until all are ended."""
        self._waiting.append(chore)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(chore) for chore in self._waiting]
        self._waiting = []

    async def close(self) -> None:
        """End all chores. One that failed for good is logged. A second close does no harm."""
        for chore in self._waiting:
            chore.close()
        for task in self._tasks:
            task.cancel()
        for error in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(error, Exception):
                log.error("a chore of the worker failed", exc_info=error)
        self._waiting, self._tasks = [], []


async def _again(seconds: float, chore: Chore, at_once: bool) -> None:
    while True:
        if not at_once:
            # A bit uneven, so that workers which were started together do not all come to the store together.
            await asyncio.sleep(seconds * random.uniform(0.9, 1.1))
        at_once = False
        try:
            await chore()
        except Exception:
            log.exception("a chore of the worker failed; it is tried again in %g s", seconds)
