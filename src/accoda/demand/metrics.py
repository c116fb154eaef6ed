"""A demand in numbers: its waiting jobs, and what was counted (answers, calls, deliveries, prefetches).

Each process counts for itself and adds to a shared document every few seconds and when its app is closed, so that a
request needs no write for it. A process that is killed loses the counts of its last seconds. They are for people to
look at, and tell a sweep that something may have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from accoda.demand.score import Band
from accoda.errors import StorageError, VersionConflict
from accoda.model import Done, Outcome
from accoda.payload import read_json
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Store

FLUSH_EVERY = 5.0
_TRIES = 100


class QueueMetrics(Struct, frozen=True, kw_only=True):
    """The waiting jobs at the moment `at`. Ages are in seconds; `reranked` is how many a sweep gave another rank."""

    at: int = 0
    depth: int = 0
    oldest_age: float = 0.0
    mean_wait: float = 0.0
    bands: dict[Band, int] = {}
    reranked: int = 0


class Counts(Struct, kw_only=True):
    """Since the demand was first used. `left` counts the waiters that withdrew; `served` the fetch jobs that succeeded,
    with a call or without."""

    cached: int = 0
    stale: int = 0
    attached: int = 0
    created: int = 0
    left: int = 0
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
    """A demand in numbers: its waiting jobs, and the counts since its first use."""

    queue: str
    waiting: QueueMetrics
    counts: Counts


class Counters:
    """The counts of this process that are not in the document yet. They are added to it some seconds after the first of
    them, and when the app is closed."""

    def __init__(self, queue: str) -> None:
        self.name = f"demand/{queue}/counts"
        self.mine = Counts()
        self._timers: dict[asyncio.AbstractEventLoop, asyncio.TimerHandle] = {}
        self._flushing: set[asyncio.Task[None]] = set()

    def answered(self, store: Store, what: str) -> None:
        """Count an answer to a request, or a waiter that left."""
        setattr(self.mine, what, getattr(self.mine, what) + 1)
        loop = asyncio.get_running_loop()
        if loop not in self._timers:
            self._timers = {other: timer for other, timer in self._timers.items() if not other.is_closed()}
            self._timers[loop] = loop.call_later(FLUSH_EVERY, self._flush_soon, loop, store)

    def fetched(self, prefetch: bool, wanted: bool, cost: int) -> None:
        self.mine.served += 1
        if prefetch:
            self.mine.prefetch_completed += 1
            self.mine.prefetch_converted += wanted
            self.mine.prefetch_tokens += cost

    def delivered(self, outcomes: Sequence[Outcome]) -> None:
        self.mine.delivered += sum(isinstance(outcome, Done) for outcome in outcomes)

    @property
    def has_any(self) -> bool:
        return bool(self._flushing) or self.mine != Counts()

    def _flush_soon(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        self._timers.pop(loop, None)
        task = loop.create_task(self.flush(store))
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

    async def close(self, store: Store) -> None:
        """The last flush on this event loop."""
        loop = asyncio.get_running_loop()
        if (timer := self._timers.pop(loop, None)) is not None:
            timer.cancel()
        # One that is under way has taken its counts already: the store must not be closed beneath it.
        await asyncio.gather(*(task for task in self._flushing if task.get_loop() is loop), self.flush(store))

    async def flush(self, store: Store) -> None:
        """Add this process's counts to the document. If that fails, they are added the next time."""
        if self.mine == Counts():
            return
        mine, self.mine = self.mine, Counts()
        written, pauses = False, Backoff(first=0.005, longest=0.2)
        try:
            for _ in range(_TRIES):
                document = await store.read(self.name)
                total = add(_read(document.value) if document else Counts(), mine)
                try:
                    written = True  # also if it is cancelled now: most likely it comes through
                    version = document.version if document else 0
                    await store.write(self.name, msgspec.json.encode(total), version=version)
                    return
                except VersionConflict:  # another process was faster: each round, one of them gets through
                    written = False
                    await pauses.nap()
        except StorageError:
            written = False
        finally:
            if not written:
                self.mine = add(self.mine, mine)


def add(one: Counts, other: Counts) -> Counts:
    return Counts(**{name: getattr(one, name) + getattr(other, name) for name in Counts.__struct_fields__})


async def read_counts(store: Store, queue: str) -> Counts:
    """What all processes together have counted."""
    document = await store.read(f"demand/{queue}/counts")
    return _read(document.value) if document else Counts()


def _read(value: bytes) -> Counts:
    return read_json(value, Counts) or Counts()
