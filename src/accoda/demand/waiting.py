"""The waiting jobs of a demand in numbers: right at the moment of the question, without a look at each job.

up to ONE_LOOK jobs   they are looked at, all in one call for each state
more                  number and oldest age are the store's own counters; bands and mean come from the last count,
                      which is made anew only if something has changed since (`Marks`), and by one process at a time
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.demand.metrics import QueueMetrics, read_counts
from accoda.demand.records import claim
from accoda.demand.score import BANDS, band
from accoda.model import Cursor, Head, JobInfo, QueueStats, State
from accoda.payload import read_json
from accoda.storage.protocol import Store

ONE_LOOK = 1000
COUNT_EVERY = 5.0
WAITING: tuple[State, ...] = ("ready", "delayed", "held")

Marks = tuple[int, ...]
"""Counters that do not all stay the same if a job or a waiter comes, goes or comes back. See `marks`."""


class Count(Struct, frozen=True, kw_only=True):
    """The last count, in a document. `marks` were read before the jobs were; `next_at` is the first moment at which
    time changes a score (0: unknown)."""

    waiting: QueueMetrics
    marks: Marks = ()
    next_at: int = 0


class Tally:
    """Adds up waiting jobs, as of the moment `at`."""

    def __init__(self, at: int) -> None:
        self.at = at
        self._bands = dict.fromkeys(BANDS, 0)
        self._ages = self._oldest = 0.0

    def add(self, job: JobInfo, rank: float) -> None:
        self._bands[band(rank)] += 1
        age = max(0, self.at - job.created_at) / 1000
        self._ages, self._oldest = self._ages + age, max(self._oldest, age)

    def metrics(self, reranked: int = 0) -> QueueMetrics:
        depth = sum(self._bands.values())
        return QueueMetrics(
            at=self.at,
            depth=depth,
            oldest_age=self._oldest,
            mean_wait=self._ages / depth if depth else 0.0,
            bands=self._bands,
            reranked=reranked,
        )


async def read_waiting(store: Store, queue: str) -> QueueMetrics:
    """What waits in a demand's queue now."""
    stats = await _stats(store, queue)
    depth = stats.ready + stats.delayed + stats.held
    if depth <= ONE_LOOK:
        return await _count(store, queue)
    last, now = await read_count(store, queue), await _marks(store, queue, stats)
    if last.marks != now and await claim(store, f"demand/{queue}/counter", COUNT_EVERY):
        last = Count(waiting=await _count(store, queue), marks=now)
        await write_count(store, queue, last)
    at = (await store.look(Head(queue))).at
    aged = last.waiting.mean_wait + max(0, at - last.waiting.at) / 1000
    return replace(last.waiting, at=at, depth=depth, oldest_age=stats.oldest_age, mean_wait=aged)


async def marks(store: Store, queue: str) -> Marks:
    """The counters of a demand: if they are the same as before, the waiting jobs and their waiters are too.

    Every way into and out of waiting changes one of the store's counters of the queue, or the demand's own counts of
    requests: a new job, a take, a retry, the end of a lease, a revival; a waiter that joins or leaves. The latter two
    are counted some seconds late, and not at all by a process that is killed: see `ranking.EVERYTHING`.
    """
    return await _marks(store, queue, await _stats(store, queue))


async def _marks(store: Store, queue: str, stats: QueueStats) -> Marks:
    counts = await read_counts(store, queue)
    joins = counts.created + counts.attached + counts.stale
    ended = (stats.done, stats.retried, stats.buried, stats.expired, stats.cancelled)
    return (stats.ready, stats.taken, stats.delayed, stats.held, stats.dead, *ended, joins, counts.left)


async def read_count(store: Store, queue: str) -> Count:
    """The last count; an empty one if there is none."""
    document = await store.read(f"demand/{queue}/metrics")
    return (document and read_json(document.value, Count)) or Count(waiting=Tally(0).metrics())


async def write_count(store: Store, queue: str, count: Count) -> None:
    await store.write(f"demand/{queue}/metrics", msgspec.json.encode(count))


async def _stats(store: Store, queue: str) -> QueueStats:
    return (await store.stats()).queues.get(queue, QueueStats())


async def _count(store: Store, queue: str) -> QueueMetrics:
    tally = Tally((await store.look(Head(queue))).at)
    for state in WAITING:
        after: Cursor | None = None
        while page := await store.browse(queue, state, order="id", after=after, limit=ONE_LOOK):
            after = page[-1].cursor("id")
            for job in page:
                tally.add(job, job.rank)
            if len(page) < ONE_LOOK:
                break
    return tally.metrics()
