"""Lets a job that may be poison run while its process holds no other: if it kills the process, only it loses a lease.

Jobs that lost a lease together come back together. Without this, a good job could be taken beside the poison again and
again, by another processor of the same process, until it is taken for poison itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


class PoisonIsolation:
    """Shared by the processors of a worker. Belongs to its event loop: between two awaits nothing else happens.

    A processor is *at work* from before its take until its last outcome is settled. One at a time may be the *owner*:
    the others take nothing until it ends, of which `on_end` tells them.
    """

    def __init__(self, on_end: Callable[[], None] = lambda: None) -> None:
        self.at_work: set[object] = set()
        self.owner: object | None = None
        self._on_end = on_end
        self._left = asyncio.Event()

    def leave(self, processor: object) -> None:
        """It has no jobs in hand any more."""
        self.at_work.discard(processor)
        self._left.set()

    async def begin(self, processor: object, patience: float) -> bool:
        """Become the owner, and wait until no other has jobs in hand; False: another is, so put yours down.

        After `patience` seconds the wait is given up: long batches of others cost the process no more time than that,
        and only they are in danger then.
        """
        if self.owner is not None:
            return False
        self.owner = processor
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while self.at_work - {processor}:
                    self._left.clear()
                    await self._left.wait()
        return True

    def end(self, processor: object) -> None:
        """The isolation is over, if this processor is its owner."""
        if self.owner is processor:
            self.owner = None
            self._on_end()
