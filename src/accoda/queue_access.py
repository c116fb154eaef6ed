"""How a processor takes jobs from a queue and settles them there: one seam for the plain way and for what wraps it.

    processor ──► PaidAccess (budgets) ──► HookedAccess (demands) ──► StoreAccess ──► store

A worker puts the layers together when it starts; a queue without budgets and hooks has the last one alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from accoda.model import Job, NewJob, Outcome, Refused
from accoda.retry import Result
from accoda.storage.protocol import Store

FOLLOW_UPS = 1000
"""How many follow-ups are settled in one call, unless one job alone has more."""


class Taken(Struct, frozen=True):
    """What a take found.

    `more`: there may be more at once. `hopeless`: jobs that can never run, each with the reason. `blocked_for`: nothing
    can be taken for so many milliseconds, unless it is told earlier.
    """

    jobs: Sequence[Job] = ()
    more: bool = False
    hopeless: Sequence[tuple[Job, str]] = ()
    blocked_for: int | None = None


class RunningBatch(Protocol):
    """What the layers see of a batch whose handler is about to be called."""

    taken: Sequence[Job]
    reporter: Any

    @property
    def results(self) -> Mapping[int, Result]: ...


class QueueAccess(Protocol):
    """One queue, for the processors of one worker."""

    async def take(
        self, count: int, settling: asyncio.Future[None] | None = None, max_cost: int | None = None
    ) -> Taken:
        """Take up to `count` jobs. `settling`: the last batch of the same processor is being settled meanwhile."""
        ...

    def began(self, batch: RunningBatch) -> None:
        """The handler of these jobs is about to be called."""
        ...

    async def settle(self, outcomes: list[Outcome]) -> list[Refused]:
        """Settle, however often it must be tried. What the store will not have counts as refused."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> bool:
        """Enqueue, however often it must be tried. False: the store will not have it."""
        ...

    def forget(self, jobs: Iterable[Job]) -> None:
        """Nothing becomes of these jobs: their leases end by themselves."""
        ...


class QueueHooks(Protocol):
    """What a demand does around the runs of its jobs.

    `opening` and `ending` may be called again for the same jobs: after the store was away, or when more waiters have
    joined.
    """

    async def opening(self, store: Store, jobs: Sequence[Job]) -> None:
        """Called with the jobs of a take before their payloads are decoded: fetch what the codec needs."""
        ...

    async def ending(self, store: Store, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes as they shall be settled. Those that are then refused as "grown" are asked for again."""
        ...

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        """These were accepted by the store, as `ending` gave them. Called once for each."""
        ...


def portions(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """The outcomes in parts of about a thousand follow-ups each, so that no settle takes too long."""
    parts: list[list[Outcome]] = [[]]
    many = 0
    for outcome in outcomes:
        count = len(outcome.then)
        if parts[-1] and many + count > FOLLOW_UPS:
            parts.append([])
            many = 0
        parts[-1].append(outcome)
        many += count
    return parts
