"""What happened, according to the storage's answers."""

from __future__ import annotations

from collections import Counter, deque
from typing import Literal

from msgspec import Struct

from accoda.priority import Priority

What = Literal["done", "retried", "buried", "crashed", "refused", "revived", "removed"]

NOTABLE: frozenset[What] = frozenset(("buried", "crashed", "refused", "revived", "removed"))


class Event(Struct, frozen=True):
    """One event of one job."""

    what: What
    id: int
    kind: str
    rank: float
    attempts: int
    worker: str = ""
    note: str = ""

    @property
    def priority(self) -> Priority:
        return Priority(int(self.rank))  # the policy is `strict`: the rank is the level


class EventLog:
    """The last events and the counts. Bounded, because a demo may be left running for days."""

    def __init__(self) -> None:
        self.enqueued = 0
        self.counts: Counter[What] = Counter()
        self.last: deque[Event] = deque(maxlen=50)
        self.notable: deque[Event] = deque(maxlen=50)
        self._taken: Counter[Priority] = Counter()
        self._waited: Counter[Priority] = Counter()

    def note(self, event: Event) -> None:
        """Count the event. Rare ones have a list of their own, so that the others do not push them out."""
        self.counts[event.what] += 1
        (self.notable if event.what in NOTABLE else self.last).append(event)

    def waited(self, priority: Priority, milliseconds: int) -> None:
        """A worker took a job that had been ready for that long."""
        self._taken[priority] += 1
        self._waited[priority] += milliseconds

    def mean_waits(self) -> dict[Priority, float]:
        """Seconds between ready and taken, for the priorities of which a job was taken."""
        return {level: self._waited[level] / self._taken[level] / 1000 for level in Priority if self._taken[level]}
