"""Demands in numbers, as workers last stored them; the fetches of one, their waiters, and what is cached."""

from __future__ import annotations

import builtins
from typing import Literal

import msgspec
from msgspec import Struct

from accoda.demand.metrics import Counts, QueueMetrics, read_counts, read_metrics
from accoda.demand.records import FetchPayload, read_cached
from accoda.demand.score import Band, band
from accoda.demand.waiters import present, read_entries
from accoda.envelope import unwrap
from accoda.errors import NotFound
from accoda.limits import is_name
from accoda.model import ByKey, JobInfo, State
from accoda.operations.host import Host
from accoda.operations.moments import now_of, rfc3339
from accoda.operations.views import same

PREFIX = "demand/"
MOST = 50
"""Fetches or cached results that are shown."""
MOST_WAITERS = 200

Freshness = Literal["fresh", "stale", "old", "unknown"]


class DemandView(Struct, rename="camel", frozen=True, kw_only=True):
    """A demand: its waiting fetches as the last upkeep found them (`at`), and what all processes have counted."""

    queue: str
    at: str | None = None
    depth: int = 0
    oldest_age: float = 0.0
    mean_wait: float = 0.0
    bands: dict[str, int] = {}
    cached: int = 0
    stale: int = 0
    attached: int = 0
    created: int = 0
    hit_rate: float = 0.0
    calls: int = 0
    served: int = 0
    delivered: int = 0
    prefetch_created: int = 0
    prefetch_completed: int = 0
    prefetch_converted: int = 0
    prefetch_tokens: int = 0

    @classmethod
    def of(cls, queue: str, metrics: QueueMetrics, counts: Counts) -> DemandView:
        return cls(
            **same(metrics, "depth oldest_age mean_wait"),
            **same(counts, " ".join(Counts.__struct_fields__)),
            queue=queue,
            at=rfc3339(metrics.at or None),
            bands={str(band): count for band, count in metrics.bands.items()},
            hit_rate=counts.hit_rate,
        )


class FetchView(Struct, rename="camel", frozen=True, kw_only=True):
    """A fetch that waits or runs. `waiters` counts entries, including those that left; `score` is its rank: lower is
    sooner."""

    id: int
    key: str
    state: State
    waiters: int
    score: float
    band: Band
    cost: int
    prefetch: bool
    attempts: int
    created_at: str
    reason: str | None = None

    @classmethod
    def of(cls, job: JobInfo) -> FetchView:
        return cls(
            **same(job, "id state waiters cost attempts"),
            key=job.key or "",
            score=job.rank,
            band=band(job.rank),
            prefetch=_is_prefetch(job),
            created_at=rfc3339(job.created_at),
            reason=job.reason or None,
        )


class CachedView(Struct, rename="camel", frozen=True, kw_only=True):
    """A cached result. "old": it is kept for its deliveries only; "unknown": this app does not declare the demand, so
    it does not know how long a result is fresh."""

    key: str
    fetched_at: str
    age: float
    freshness: Freshness
    fresh_until: str | None = None
    kept_until: str


class WaiterView(Struct, rename="camel", frozen=True, kw_only=True):
    """A waiter for a result; `due`: by when it is wanted."""

    id: str
    tier: str
    due: str | None = None
    delivered: bool = True


async def list(host: Host) -> builtins.list[DemandView]:
    """Every demand that this app declares or that any process has counted for, by queue."""
    store = await host.connections.get()
    stored = {_queue(document.name) for document in await store.documents(PREFIX)}
    queues = sorted(host.demands.keys() | {queue for queue in stored if is_name(queue)})
    return [DemandView.of(queue, await read_metrics(store, queue), await read_counts(store, queue)) for queue in queues]


async def get(host: Host, queue: str) -> DemandView:
    """One demand."""
    for demand in await list(host):
        if demand.queue == queue:
            return demand
    raise NotFound("demand", queue, "an app declares it with app.demand(…)")


async def fetches(host: Host, queue: str, most: int = MOST) -> builtins.list[FetchView]:
    """Fetches that run, then those that are ready, the most urgent first, then those that are delayed."""
    store = await host.connections.get()
    states: tuple[State, ...] = ("taken", "ready", "delayed")
    return [FetchView.of(job) for state in states for job in await store.browse(queue, state, limit=most)][:most]


async def cached(host: Host, queue: str, most: int = MOST) -> builtins.list[CachedView]:
    """Cached results, by the moment at which they leave the store."""
    store = await host.connections.get()
    now = await now_of(store)
    jobs = await store.browse(f"{queue}.cache", "delayed", limit=most)
    return [view for job in jobs if (view := _cached(host, queue, job, now)) is not None]


async def waiters(host: Host, queue: str, key: str, count: int) -> builtins.list[WaiterView]:
    """The waiters of the fetch of a key, of the latest 200 entries; `count` is how many it has."""
    store = await host.connections.get()
    look = await store.look(ByKey(queue, key), waiters_after=max(0, count - MOST_WAITERS))
    job = None if look.job is None else look.job.id
    entries = [*present(read_entries(look.waiters), job).values()][:MOST_WAITERS]
    return [
        WaiterView(id=entry.id, tier=entry.tier, due=rfc3339(entry.due), delivered=entry.kind == 0) for entry in entries
    ]


def _is_prefetch(job: JobInfo) -> bool:
    try:
        return _fetch_payload.decode(unwrap(job.data)[1]).prefetch
    except (ValueError, RecursionError):  # unreadable: the worker that runs it will say so
        return False


def _cached(host: Host, queue: str, job: JobInfo, now: int) -> CachedView | None:
    found = read_cached(job)
    if found is None:
        return None
    demand = host.demands.get(queue)
    age = max(0, now - found.fetched_at) / 1000
    freshness: Freshness = "unknown"
    if demand is not None:
        freshness = "fresh" if age < demand.fresh_for else "stale" if age < demand.keep_for else "old"
    return CachedView(
        key=job.key or "",
        fetched_at=rfc3339(found.fetched_at),
        age=age,
        freshness=freshness,
        fresh_until=None if demand is None else rfc3339(found.fetched_at + demand.fresh_ms),
        kept_until=rfc3339(job.start_time),
    )


def _queue(name: str) -> str:
    """The queue of a document such as `demand/deals/metrics`; empty for others."""
    middle, _, kind = name.removeprefix(PREFIX).rpartition("/")
    return middle if kind in ("metrics", "counts") else ""


_fetch_payload = msgspec.msgpack.Decoder(FetchPayload)
