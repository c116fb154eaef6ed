"""What the processors of a worker share, and what one of them carries from turn to turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from accoda.clock import Clock
from accoda.model import Outcome
from accoda.runtime.attempts import Attempts
from accoda.runtime.batch import Batch
from accoda.runtime.caution import Caution
from accoda.runtime.desk import Desk
from accoda.runtime.events import Audience
from accoda.runtime.keeper import Held, Keeper
from accoda.runtime.rotation import Rotation
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.runtime.purse import Purse


class Room:
    """What the processors of a worker share."""

    def __init__(self, store: Store, desks: Mapping[str, Desk], keeper: Keeper, clock: Clock) -> None:
        self.store = store
        self.desks = desks
        self.keeper = keeper
        self.clock = clock
        self.rotation = Rotation(desks)
        self.caution = Caution()
        self.purse: Purse | None = None
        """Pays for the takes of the queues that have budgets; None: no queue has."""
        self.audience = Audience()
        self.worker = ""
        self.attempts = Attempts("")
        self.stopping = False
        self.draining = False
        """Whether its processors finish what they have and take nothing more."""
        self.aborted = False
        self.jobs_run = 0


class Carry:
    """A batch that was run, on its way to be settled."""

    __slots__ = ("batch", "desk", "duration", "flushed", "held", "since", "started", "waited")

    def __init__(self, desk: Desk, batch: Batch[Any], held: Held, started: float) -> None:
        self.desk = desk
        self.batch = batch
        self.held = held
        self.started = started
        self.since = 0
        """The moment (milliseconds) at which it was handed to its handler."""
        self.duration = 0.0
        self.waited = 0.0
        self.flushed: asyncio.Event | None = None
        """Set when the last `flush` of it has ended; None: there was none."""

    async def outcomes(self) -> list[Outcome]:
        """What is still to be settled, at the batch's end.

        A `flush` may be on its way. It is waited for, because until the store has answered nobody knows which of its
        jobs are settled, and their leases must be kept.
        """
        if self.flushed is not None:
            await self.flushed.wait()
        return self.desk.outcomes(self.batch)
