"""The storage's clock, read in this process: what all workers that share a budget agree on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable

from msgspec import Struct

from accoda.clock import Clock
from accoda.model import Head
from accoda.storage.protocol import Store

EVERY = 30.0
"""Seconds between two looks at the storage's clock."""
SAMPLES = 8
"""How many looks are remembered."""
PROBE = "budgets"
"""The queue that is looked at for its clock; nothing is ever in it. In a cluster each server has a clock of its own, so
all workers ask the same one."""


class _Sample(Struct, frozen=True):
    least: float  # storage's clock less ours, at least
    most: float  # and at most


class StorageClock:
    """Learns the storage's clock from `Look.at`, and goes on by this machine's steady clock.

    The wall clock of this machine plays no part: it may be an hour off. The storage read its clock at some moment
    between the call and its answer, so each look gives bounds, and `now` is the tightest lower one: the look with the
    shortest way back. It is therefore never ahead of the storage, and behind by less than one way. Behind is the safe
    side: a clock that is ahead sees tokens that are not there yet.

    With a `clock` of the app's own (a test's), it is that clock's `now`.
    """

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES)
        self._looked_at = 0.0

    async def now(self) -> int:
        """The present moment by the storage's clock. Asks the storage where the last look is too long ago."""
        if self._clock is not None:
            return self._clock.now()
        if not self._samples or self._monotonic() - self._looked_at >= EVERY:
            await self._look()
        return self.guess()

    def guess(self) -> int:
        """The present moment by what is known already, without a call; our own wall clock before the first look."""
        if self._clock is not None:
            return self._clock.now()
        if not self._samples:
            return time.time_ns() // 1_000_000
        return int(self._monotonic() * 1000 + max(sample.least for sample in self._samples))

    async def _look(self) -> None:
        store = await self._store()
        sent = self._monotonic()
        look = await store.look(Head(PROBE))
        self.learn(look.at, sent, self._monotonic())

    def learn(self, at: int, sent: float, received: float) -> None:
        """Take note of a look: the storage said `at` between these two moments of the steady clock."""
        # `at` is rounded down, so the true reading is up to 1 ms later.
        sample = _Sample(least=at - received * 1000, most=at + 1 - sent * 1000)
        if any(not _agree(sample, old) for old in self._samples):
            # No two looks at one steady clock exclude each other: it was set, or another server answers now.
            self._samples.clear()
        self._samples.append(sample)
        self._looked_at = received


def _agree(one: _Sample, other: _Sample) -> bool:
    slack = 1.0  # ms, for clocks that run at slightly different speeds: 30 ppm over half a minute
    return one.least <= other.most + slack and other.least <= one.most + slack
