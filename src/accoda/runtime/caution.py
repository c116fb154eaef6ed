"""Lets a job that may be poison run while its process holds no other: if it kills the process, only it loses a lease.

Jobs that lost a lease together come back together. Without this, a good job could be taken beside the poison again and
again, by another processor of the same process, until it is taken for poison itself.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Caution:
    """Shared by the processors of a worker. Belongs to its event loop: between two awaits nothing else happens.

    A processor has a *hand* from before its take until its last outcome is settled. One of them at a time may have the
    *turn*: the others take nothing until it is over.
    """

    def __init__(self) -> None:
        self.hands: set[object] = set()
        self.turn: object | None = None
        self._over = asyncio.Event()
        self._moved = asyncio.Event()

    def put_down(self, who: object) -> None:
        """It holds no jobs any more."""
        self.hands.discard(who)
        self._moved.set()

    async def wait(self) -> None:
        """Until nobody has the turn."""
        while self.turn is not None:
            await self._over.wait()

    async def gain(self, who: object, patience: float) -> bool:
        """Have the turn, and wait until nobody else holds jobs; False: another has it, so put yours down.

        After `patience` seconds the wait is given up: long batches of others cost the process no more time than that,
        and only they are in danger then.
        """
        if self.turn is not None:
            return False
        self.turn = who
        self._over.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while self.hands - {who}:
                    self._moved.clear()
                    await self._moved.wait()
        return True

    def end(self, who: object) -> None:
        """The turn is over, if it was theirs."""
        if self.turn is who:
            self.turn = None
            self._over.set()
