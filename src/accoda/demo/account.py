"""The sum at the end: what went in is what came out, plus what is still there."""

from __future__ import annotations

from msgspec import Struct

from accoda.demo.jobs import QUEUE
from accoda.demo.journal import Journal
from accoda.model import QueueStats
from accoda.priority import Priority
from accoda.storage.protocol import Storage


class Account(Struct, frozen=True):
    """Both sides of the books: the storage's counts, and what the producer and the workers were told."""

    stats: QueueStats
    enqueued: int
    done: int
    buried: int
    revived: int
    removed: int
    refused: int
    crashed: int
    mean_waits: dict[Priority, float]

    @property
    def found(self) -> int:
        """The jobs that can be accounted for."""
        stats = self.stats
        return stats.done + stats.dead + stats.ready + stats.delayed + stats.taken + self.removed

    def problems(self) -> list[str]:
        """What does not add up; empty if all is well."""
        stats = self.stats
        checks = (
            (self.enqueued, self.found, "jobs were enqueued, but {} can be accounted for"),
            (self.done, stats.done, "jobs were settled as done, but the storage counted {}"),
            (self.buried - self.revived - self.removed, stats.dead, "jobs should be dead, but the storage counted {}"),
        )
        return [f"{ours} {text.format(theirs)}" for ours, theirs, text in checks if ours != theirs]


async def take_account(storage: Storage, journal: Journal) -> Account:
    """Close the books. Nobody may be at work any more, or the two sides are read at different moments."""
    counts = journal.counts
    return Account(
        stats=(await storage.stats()).queues.get(QUEUE, QueueStats()),
        enqueued=journal.enqueued,
        done=counts["done"],
        buried=counts["buried"],
        revived=counts["revived"],
        removed=counts["removed"],
        refused=counts["refused"],
        crashed=counts["crashed"],
        mean_waits=journal.mean_waits(),
    )
