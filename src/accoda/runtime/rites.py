"""What a queue of ours may do around its handler's runs that a user's handler never needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from accoda.model import Job, Outcome
from accoda.storage.protocol import Store


class Rites(Protocol):
    """`opening` and `ending` may be called again for the same jobs: after the store was away, or when more waiters have
    joined."""

    async def opening(self, store: Store, jobs: Sequence[Job]) -> None:
        """Called with the jobs of a take before their payloads are decoded: fetch what the codec needs."""
        ...

    async def ending(self, store: Store, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes as they shall be settled. Those that are then refused as "grown" are asked for again."""
        ...

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        """These were accepted by the store, as `ending` gave them. Called once for each."""
        ...
