"""The totals at the end: the jobs that went in are those that came out, plus those that are still there."""

from __future__ import annotations

from examples.demo.event_log import EventLog
from examples.demo.jobs import QUEUE
from msgspec import Struct

from accoda.model import QueueStats
from accoda.priority import Priority
from accoda.storage.protocol import Storage


class Totals(Struct, frozen=True):
    """The storage's counts, and what the producer and the workers were told."""

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
        """The differences; empty if the totals agree."""
        stats = self.stats
        checks = (
            (self.enqueued, self.found, "jobs were enqueued, but {} can be accounted for"),
            (self.done, stats.done, "jobs were settled as done, but the storage counted {}"),
            (self.buried - self.revived - self.removed, stats.dead, "jobs should be dead, but the storage counted {}"),
        )
        return [f"{ours} {text.format(theirs)}" for ours, theirs, text in checks if ours != theirs]


async def read_totals(storage: Storage, log: EventLog) -> Totals:
    """Read the totals. All loops must have stopped, or the two sides would be of different moments."""
    counts = log.counts
    return Totals(
        stats=(await storage.stats()).queues.get(QUEUE, QueueStats()),
        enqueued=log.enqueued,
        done=counts["done"],
        buried=counts["buried"],
        revived=counts["revived"],
        removed=counts["removed"],
        refused=counts["refused"],
        crashed=counts["crashed"],
        mean_waits=log.mean_waits(),
    )
