"""What a demand counts: answers, calls, deliveries, prefetches.

Each process counts for itself and adds to the shared document now and then, so that a request costs no write for it. A
process that is killed takes the counts of its last seconds with it: they are for people to look at, nothing is decided
by them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from accoda.errors import StorageError, VersionConflict
from accoda.model import Done, Outcome
from accoda.payload import read_json
from accoda.storage.protocol import Store

FLUSH_EVERY = 5.0
_TRIES = 8


class Counts(Struct, kw_only=True):
    """Since the demand was first used. `served` counts the fetch jobs that ended well, with a call or without."""

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


class Counters:
    """The counts of this process that the document does not have yet."""

    def __init__(self, queue: str) -> None:
        self.name = f"demand/{queue}/counts"
        self.mine = Counts()
        self._flushed_at = time.monotonic()

    async def answered(self, store: Store, what: str) -> None:
        setattr(self.mine, what, getattr(self.mine, what) + 1)
        if time.monotonic() - self._flushed_at > FLUSH_EVERY:
            await self.flush(store)

    def called(self) -> None:
        self.mine.calls += 1

    def fetched(self, prefetch: bool, wanted: bool, cost: int) -> None:
        self.mine.served += 1
        if prefetch:
            self.mine.prefetch_completed += 1
            self.mine.prefetch_converted += wanted
            self.mine.prefetch_tokens += cost

    def delivered(self, outcomes: Sequence[Outcome]) -> None:
        self.mine.delivered += sum(isinstance(outcome, Done) for outcome in outcomes)

    async def flush(self, store: Store) -> None:
        """Add this process's counts to the document. What cannot be added now is added the next time."""
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


def _read(value: bytes) -> Counts:
    return read_json(value, Counts) or Counts()
