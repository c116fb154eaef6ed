"""The document in which a worker says that it lives and what it does: `worker/{id}`, with a time to live.

The manager, the command line and the dashboard read it; nothing depends on it for correctness (leases do that).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from accoda.storage.protocol import Storage

PREFIX = "worker/"


class ProcessorState(Struct, frozen=True):
    """What one processor does: the queue and the jobs it runs, since when (milliseconds); no queue: it is free."""

    queue: str | None = None
    jobs: int = 0
    first_id: int | None = None
    since: int | None = None


class QueueRate(Struct, frozen=True):
    """What this worker measured of a queue since its last heartbeat but a few: busy seconds and jobs, decayed."""

    jobs: float = 0.0
    busy: float = 0.0


class Heartbeat(Struct, frozen=True):
    """One worker, as it sees itself."""

    id: str
    name: str
    host: str
    pid: int
    started_at: int
    beat_at: int
    queues: tuple[str, ...]
    max_processors: int
    processors: tuple[ProcessorState, ...] = ()
    rates: dict[str, QueueRate] = {}
    caps: dict[str, int] = {}
    ready: bool = True
    problem: str = ""


def encode(heartbeat: Heartbeat) -> bytes:
    """As JSON, so that a person can read it in any store."""
    return msgspec.json.encode(heartbeat)


async def read_heartbeats(storage: Storage) -> list[Heartbeat]:
    """Every worker that lives. One that cannot be read (of a newer version, or damaged) is left out."""
    found = []
    for document in await storage.documents(PREFIX):
        try:
            found.append(msgspec.json.decode(document.value, type=Heartbeat))
        except msgspec.MsgspecError:
            continue
    return found
