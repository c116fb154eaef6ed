"""Lets a job that may be poison run while its process holds no other: if it kills the process, only it loses a lease.

Jobs that lost a lease together come back together. Without this, a good job could be taken beside the poison again and
again, by another processor of the same process, until it is taken for poison itself.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


class PoisonIsolation:
    """Shared by the processors of a worker. Belongs to its event loop: between two awaits nothing else happens.

    A processor is *at work* from before its take until its last outcome is settled. One at a time may be the *owner*:
    the others take nothing until it ends.
    """

    def __init__(self) -> None:
        self.at_work: set[object] = set()
        self.owner: object | None = None
        self._over = asyncio.Event()
        self._left = asyncio.Event()

    def leave(self, processor: object) -> None:
        """It has no jobs in hand any more."""
        self.at_work.discard(processor)
        self._left.set()

    async def wait(self) -> None:
        """Until there is no owner."""
        while self.owner is not None:
            await self._over.wait()

    async def begin(self, processor: object, patience: float) -> bool:
        """Become the owner, and wait until no other has jobs in hand; False: another is, so put yours down.

        After `patience` seconds the wait is given up: long batches of others cost the process no more time than that,
        and only they are in danger then.
        """
        if self.owner is not None:
            return False
        self.owner = processor
        self._over.clear()
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
            self._over.set()
