"""How calls cope with a server that is away: growing pauses between attempts, and a limit for all of them together.

A worker's calls wait out a restart, for as long as its storage allows. A request that a person waits for has less time:
the caller says so here, in a context variable that holds for the task and for tasks started in it. Storages read it
only when something is wrong, so calls that succeed pay nothing for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

patience_limit: ContextVar[float] = ContextVar("accoda_patience", default=math.inf)
log = logging.getLogger("accoda.storage")
TELL_AFTER = 0.5  # seconds that a server is away before a line is logged: a lost connection alone is no news
TELL_EVERY = 30.0


class Backoff:
    """Pauses of random length, from nothing to a limit that doubles up to `longest` seconds.

    The whole length is random, not a part of it: a thousand clients that lost their server at the same moment come back
    evenly spread, and after the first few tries they make at most 2,000 / `longest` attempts a second.
    """

    def __init__(self, first: float = 0.02, longest: float = 1.0) -> None:
        self._first = self._limit = first
        self._longest = longest

    def next(self) -> float:
        """The next pause in seconds."""
        limit, self._limit = self._limit, min(self._longest, self._limit * 2)
        return random.uniform(0.0, limit)

    async def nap(self, at_most: float = math.inf) -> None:
        await asyncio.sleep(max(0.0, min(at_most, self.next())))

    def reset(self) -> None:
        """It worked: start again with short pauses."""
        self._limit = self._first


class OutageLog:
    """Says that a server is away while calls keep trying: else a worker would look idle until their patience is over.

    One line in `TELL_EVERY` seconds for all calls of a storage. Nothing is said for a caller with limited patience: it
    gets an error soon.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._told_at = -math.inf

    def note(self, since: float, error: BaseException) -> None:
        """An attempt failed, and so did all since `since`, by the event loop's clock."""
        now = asyncio.get_running_loop().time()
        if now - since < TELL_AFTER or now - self._told_at < TELL_EVERY or patience_limit.get() < math.inf:
            return
        self._told_at = now
        log.warning("%s is not available, trying again: %s", self._server, str(error) or type(error).__name__)


def patience_of(usual: float) -> float:
    """For how many seconds a call may keep trying, where the storage itself would allow `usual`."""
    return min(usual, patience_limit.get())


def set_patience(seconds: float) -> None:
    """Let the calls of this task wait at most this long for a server that is away, from now on."""
    patience_limit.set(seconds)


@contextmanager
def limited_patience(seconds: float) -> Iterator[None]:
    """Let the calls in this block wait at most this long; a shorter limit that is already set stays."""
    before = patience_limit.set(min(seconds, patience_limit.get()))
    try:
        yield
    finally:
        patience_limit.reset(before)
