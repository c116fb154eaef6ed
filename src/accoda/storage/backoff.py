"""How long to wait before trying a server again that is away."""

from __future__ import annotations

import asyncio
import math
import random


class Backoff:
    """Longer and longer naps, each of a random length from nothing to a limit that doubles up to `longest` seconds.

    The whole length is random, not a part of it: a thousand clients that lost their server in the same moment come back
    evenly spread, and after the first few tries their number of attempts a second is at most twice their number,
    divided by `longest`.
    """

    def __init__(self, first: float = 0.02, longest: float = 1.0) -> None:
        self._first = self._limit = first
        self._longest = longest

    def next(self) -> float:
        """The next nap in seconds."""
        limit, self._limit = self._limit, min(self._longest, self._limit * 2)
        return random.uniform(0.0, limit)

    async def nap(self, at_most: float = math.inf) -> None:
        await asyncio.sleep(max(0.0, min(at_most, self.next())))

    def reset(self) -> None:
        """It worked: the next trouble is a new one."""
        self._limit = self._first
