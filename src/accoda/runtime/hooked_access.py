"""Access to a queue with hooks: what a demand does before its jobs are opened, and when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from accoda.model import Job, Outcome, Refused
from accoda.queue_access import QueueHooks, Taken, portions
from accoda.runtime.processor import StoreAccess, all_lost
from accoda.storage.protocol import Store


class HookedAccess:
    """Calls the hooks, however often the store must be asked for it."""

    def __init__(self, hooks: QueueHooks, inner: StoreAccess, store: Callable[[], Store]) -> None:
        self._hooks = hooks
        self._inner = inner
        self._store = store
        self.began = inner.began
        self.enqueue = inner.enqueue
        self.forget = inner.forget

    async def take(
        self, count: int, settling: asyncio.Future[None] | None = None, max_cost: int | None = None
    ) -> Taken:
        taken = await self._inner.take(count, settling, max_cost)
        if not taken.jobs:
            return taken
        opened = await self._inner.insist("read what the jobs need", partial(self._open, taken.jobs))
        return taken if opened else Taken(more=True)  # else the store will not have it, and the leases end

    async def settle(self, outcomes: list[Outcome]) -> list[Refused]:
        """Settle; again for those whose waiters grew meanwhile."""
        refused: list[Refused] = []
        while outcomes:
            ready = await self._inner.insist("read the waiters", partial(self._end, outcomes))
            if ready is None:
                return refused + all_lost(outcomes)
            answer = [refusal for part in portions(ready) for refusal in await self._inner.settle(part)]
            grown = {refusal.lease for refusal in answer if refusal.why == "grown"}
            refused += [refusal for refusal in answer if refusal.why != "grown"]
            gone = {refusal.lease for refusal in answer}
            self._hooks.ended([outcome for outcome in ready if outcome.lease not in gone])
            outcomes = [outcome for outcome in outcomes if outcome.lease in grown]
        return refused

    async def _open(self, jobs: Iterable[Job]) -> bool:
        await self._hooks.opening(self._store(), list(jobs))
        return True

    def _end(self, outcomes: list[Outcome]) -> Awaitable[list[Outcome]]:
        return self._hooks.ending(self._store(), outcomes)
