"""A demand in numbers: its waiting jobs, and what was counted (answers, calls, deliveries, prefetches).

Each process counts for itself and adds to a shared document every few seconds, so that a request needs no write for it.
A process that is killed loses the counts of its last seconds. They are for people to look at; nothing depends on them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from accoda.demand.score import BANDS, Band
from accoda.errors import StorageError, VersionConflict
from accoda.model import Done, Outcome
from accoda.payload import read_json
from accoda.storage.protocol import Store

FLUSH_EVERY = 5.0
_TRIES = 8


class QueueMetrics(Struct, frozen=True, kw_only=True):
    """The waiting jobs, as the last sweep found them at the moment `at`. Ages are in seconds."""

    at: int = 0
    depth: int = 0
    oldest_age: float = 0.0
    mean_wait: float = 0.0
    bands: dict[Band, int] = {}
    reranked: int = 0


class Counts(Struct, kw_only=True):
    """Since the demand was first used. `served` counts the fetch jobs that succeeded, with a call or without."""

    cached: int = 0
    stale: int = 0
    attached: int = 0
    created: int = 0
    calls: int = 0
    served: int = 0
    delivered: int = 0
    prefetch_created: int = 0
    prefetch_completed: int = 0
    prefetch_converted: int = 0
    prefetch_tokens: int = 0

    @property
    def hit_rate(self) -> float:
        """The share of the requests that found a result, fresh or stale."""
        hits = self.cached + self.stale
        asked = hits + self.attached + self.created
        return hits / asked if asked else 0.0


class DemandView(Struct, frozen=True):
    """A demand in numbers: its waiting jobs at the last sweep, and the counts since its first use."""

    queue: str
    waiting: QueueMetrics
    counts: Counts


class Counters:
    """The counts of this process that are not in the document yet."""

    def __init__(self, queue: str) -> None:
        self.name = f"demand/{queue}/counts"
        self.mine = Counts()
        self._flushed_at = time.monotonic()

    async def answered(self, store: Store, what: str) -> None:
        setattr(self.mine, what, getattr(self.mine, what) + 1)
        if time.monotonic() - self._flushed_at > FLUSH_EVERY:
            await self.flush(store)

    def fetched(self, prefetch: bool, wanted: bool, cost: int) -> None:
        self.mine.served += 1
        if prefetch:
            self.mine.prefetch_completed += 1
            self.mine.prefetch_converted += wanted
            self.mine.prefetch_tokens += cost

    def delivered(self, outcomes: Sequence[Outcome]) -> None:
        self.mine.delivered += sum(isinstance(outcome, Done) for outcome in outcomes)

    async def flush(self, store: Store) -> None:
        """Add this process's counts to the document. If that fails, they are added the next time."""
        self._flushed_at = time.monotonic()
        if self.mine == Counts():
            return
        mine, self.mine = self.mine, Counts()
        with suppress(StorageError):
            for _ in range(_TRIES):
                document = await store.read(self.name)
                total = add(_read(document.value) if document else Counts(), mine)
                with suppress(VersionConflict):
                    version = document.version if document else 0
                    await store.write(self.name, msgspec.json.encode(total), version=version)
                    return
        self.mine = add(self.mine, mine)


def add(one: Counts, other: Counts) -> Counts:
    return Counts(**{name: getattr(one, name) + getattr(other, name) for name in Counts.__struct_fields__})


async def read_counts(store: Store, queue: str) -> Counts:
    """What all processes together have counted."""
    document = await store.read(f"demand/{queue}/counts")
    return _read(document.value) if document else Counts()


async def read_metrics(store: Store, queue: str) -> QueueMetrics:
    """What the last sweep of a demand's queue found."""
    document = await store.read(f"demand/{queue}/metrics")
    return (document and read_json(document.value, QueueMetrics)) or QueueMetrics(bands=dict.fromkeys(BANDS, 0))


def _read(value: bytes) -> Counts:
    return read_json(value, Counts) or Counts()
