"""The document in which a worker says that it lives and what it does: `worker/{id}`, with a time to live.

The manager, the command line and the dashboard read it; nothing depends on it for correctness (leases do that).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from accoda.limits import MOMENT
from accoda.model import Document
from accoda.payload import read_json
from accoda.storage.protocol import Storage

PREFIX = "worker/"

# What a stored document may say. The manager computes with these numbers, and none may make it overflow or count for
# minutes; a document that says more is as good as damaged.
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Moment = Annotated[int, Meta(ge=0, le=MOMENT)]
Amount = Annotated[float, Meta(ge=0, le=1e12)]
Total = Annotated[int, Meta(ge=0, le=1 << 53)]
LAST_ERROR = 200
"""Characters of an error that a heartbeat carries."""
Processors = Annotated[int, Meta(ge=0, le=10_000)]
"""As many as the setting `max_processors` allows."""


class ProcessorState(Struct, frozen=True):
    """What one processor runs of one queue: how many jobs, the oldest of them since when (milliseconds), and how many
    `slots` it has for them; no queue: it runs nothing."""

    queue: str | None = None
    jobs: Count = 0
    first_id: int | None = None
    since: Moment | None = None
    slots: Count = 1


class QueueRate(Struct, frozen=True):
    """What this worker measured of a queue since its last heartbeat but a few: busy seconds and jobs, decayed."""

    jobs: Amount = 0.0
    busy: Amount = 0.0


class QueueSums(Struct, frozen=True, omit_defaults=True):
    """What a worker did for a queue since it began: jobs, the seconds that they ran and that they had waited, ready,
    before; and its handlers' `HandlerStats` in sum. Sums only ever grow; the difference of two looks is a rate.

    `last_error` is the text of the latest error, as in the logs: without secrets, and not all of a long one.
    """

    jobs: Total = 0
    ran: Amount = 0.0
    waited: Amount = 0.0
    processed: Total = 0
    errors: Total = 0
    retried: Total = 0
    last_error: Annotated[str, Meta(max_length=LAST_ERROR)] = ""


class Heartbeat(Struct, frozen=True):
    """One worker, as it sees itself. `slots`: how many single jobs it runs at once; `free`: how many more it could run.

    `concurrency`: the queues that may have fewer of those slots. `batches`: the queues whose handlers take whole
    batches, and how many jobs a batch has at most; each processor runs one batch at a time, beside the slots. `types`:
    of which types it handles jobs, for queues with several (None: those that no other handler serves). `draining`: it
    was asked to take nothing more, and finishes what runs. `numbers`: those of the queues that have one.
    """

    id: str
    name: str
    host: str
    pid: int
    started_at: Moment
    beat_at: Moment
    queues: tuple[str, ...]
    max_processors: Processors
    processors: tuple[ProcessorState, ...] = ()
    rates: dict[str, QueueRate] = {}
    caps: dict[str, Processors] = {}
    ready: bool = True
    problem: str = ""
    sums: dict[str, QueueSums] = {}
    draining: bool = False
    types: dict[str, tuple[str | None, ...]] = {}
    slots: Count = 0
    free: Count = 0
    concurrency: dict[str, Count] = {}
    batches: dict[str, Count] = {}
    numbers: dict[str, int] = {}

    @property
    def running(self) -> int:
        """How many jobs it runs."""
        return sum(state.jobs for state in self.processors)

    @property
    def most(self) -> int:
        """How many jobs it can run at once: in its slots, and in batches."""
        return self.slots + self.max_processors * max(self.batches.values(), default=0)

    def serves(self, queue: str, type: str | None = None) -> bool:
        """Whether it has a handler for such jobs. One without a type serves all that no other does, and a job without
        a type has the queue's only handler. A worker that does not list types serves its queues whole."""
        if queue not in self.queues:
            return False
        types = self.types.get(queue)
        return types is None or None in types or type in types or (type is None and len(types) == 1)


def encode(heartbeat: Heartbeat) -> bytes:
    """As JSON, so that a person can read it in any store."""
    return msgspec.json.encode(heartbeat)


async def read_heartbeats(storage: Storage) -> list[Heartbeat]:
    """Every worker that lives. One that cannot be read (of a newer version, or damaged) is left out."""
    found = [read_heartbeat(document) for document in await storage.documents(PREFIX)]
    return [heartbeat for heartbeat in found if heartbeat is not None]


def read_heartbeat(document: Document) -> Heartbeat | None:
    """What one document says; None if it cannot be read, or speaks for another worker: each id is there once."""
    heartbeat = read_json(document.value, Heartbeat)
    return heartbeat if heartbeat is not None and PREFIX + heartbeat.id == document.name else None
