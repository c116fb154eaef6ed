"""Demands in numbers; the fetches of one, their waiters, and what is cached; and what a waiter does: join and leave."""

from __future__ import annotations

import builtins
from typing import Any, Literal

import msgspec
from msgspec import Struct

from accoda.demand.demand import Demand
from accoda.demand.metrics import Counts, QueueMetrics, read_counts
from accoda.demand.options import Answer, Left, What
from accoda.demand.records import FetchPayload, read_cached, stored_key
from accoda.demand.score import Band, band
from accoda.demand.waiters import Waiter, present, read_entries
from accoda.demand.waiting import read_waiting
from accoda.envelope import unwrap
from accoda.errors import JobNotFound, NotFound
from accoda.limits import is_name
from accoda.model import ById, ByKey, JobInfo, State
from accoda.operations.host import Host
from accoda.operations.moments import now_of, rfc3339
from accoda.operations.views import same

PREFIX = "demand/"
MOST = 50
"""Fetches or cached results that are shown."""
MOST_WAITERS = 200

Freshness = Literal["fresh", "stale", "old", "unknown"]


class DemandView(Struct, rename="camel", frozen=True, kw_only=True):
    """A demand: its waiting fetches at the moment `at`, and what all processes have counted."""

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
    left: int = 0
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
            key=_payload(job).key or job.key or "",
            score=job.rank,
            band=band(job.rank),
            prefetch=_payload(job).prefetch,
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


class AnswerView(Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a request. `id` is the job that serves it: the delivery of a result that is there, or the fetch;
    `waiters` is how many entries the fetch has."""

    what: What
    id: int
    waiters: int = 0
    fetched_at: str | None = None

    @classmethod
    def of(cls, answer: Answer) -> AnswerView:
        return cls(**same(answer, "what id waiters"), fetched_at=rfc3339(answer.fetched_at))


class WaiterView(Struct, rename="camel", frozen=True, kw_only=True):
    """A waiter for a result; `due`: by when it is wanted. Not `delivered`: it only wants the result to be fetched."""

    id: str
    tier: str
    due: str | None = None
    delivered: bool = True


async def list(host: Host) -> builtins.list[DemandView]:
    """Every demand that this app declares or that any process has counted for, by queue."""
    store = await host.connections.get()
    stored = {_queue(document.name) for document in await store.documents(PREFIX)}
    queues = sorted(host.demands.keys() | {queue for queue in stored if is_name(queue)})
    return [DemandView.of(queue, await read_waiting(store, queue), await read_counts(store, queue)) for queue in queues]


async def get(host: Host, queue: str) -> DemandView:
    """One demand."""
    for demand in await list(host):
        if demand.queue == queue:
            return demand
    raise NotFound("demand", queue, "an app declares it with app.demand(…)")


async def fetches(host: Host, queue: str, most: int = MOST) -> builtins.list[FetchView]:
    """Fetches that run, then those that are ready, the most urgent first, then those that are held and delayed."""
    store = await host.connections.get()
    states: tuple[State, ...] = ("taken", "ready", "held", "delayed")
    return [FetchView.of(job) for state in states for job in await store.browse(queue, state, limit=most)][:most]


async def cached(host: Host, queue: str, most: int = MOST) -> builtins.list[CachedView]:
    """Cached results, by the moment at which they leave the store."""
    store = await host.connections.get()
    now = await now_of(store)
    jobs = await store.browse(f"{queue}.cache", "delayed", limit=most)
    return [view for job in jobs if (view := _cached(host, queue, job, now)) is not None]


async def waiters(host: Host, queue: str, key: str) -> builtins.list[WaiterView]:
    """The waiters of the fetch of a key, of its latest 200 entries; none if no fetch waits or runs."""
    store = await host.connections.get()
    job = (await store.look(ByKey(queue, stored_key(key)))).job
    return [] if job is None else await _waiters(host, job)


async def waiters_of(host: Host, id: int) -> builtins.list[WaiterView]:
    """The waiters of a job, of its latest 200 entries; none if it belongs to no demand."""
    job = (await (await host.connections.get()).look(ById(id))).job
    if job is None:
        raise JobNotFound(id)
    return await _waiters(host, job)


async def request(
    host: Host,
    queue: str,
    key: str,
    waiter: Waiter[Any],
    *,
    fresh_after: int | None = None,
    lane: str | None = None,
) -> AnswerView:
    """Let a waiter have the result of a key; see `Demand.request`."""
    demand = _declared(host, queue)
    demand.check_data(waiter.data)
    return AnswerView.of(await demand.request(key, waiter, fresh_after=fresh_after, lane=lane))


async def leave(host: Host, queue: str, key: str, waiter: str) -> Left:
    """Let a waiter leave; see `Demand.withdraw`."""
    return await _declared(host, queue).withdraw(key, waiter)


def _declared(host: Host, queue: str) -> Demand:
    demand = host.demands.get(queue)
    if demand is None:
        raise NotFound("demand", queue, "name the app that declares it: --app MODULE:APP, or accoda serve MODULE:APP")
    return demand


async def _waiters(host: Host, job: JobInfo) -> builtins.list[WaiterView]:
    if not job.waiters:
        return []
    store = await host.connections.get()
    look = await store.look(ById(job.id), waiters_after=max(0, job.waiters - MOST_WAITERS))
    entries = [*present(read_entries(look.waiters), job.id).values()][:MOST_WAITERS]
    return [
        WaiterView(id=entry.id, tier=entry.tier, due=rfc3339(entry.due), delivered=entry.kind == 0) for entry in entries
    ]


def _payload(job: JobInfo) -> FetchPayload:
    try:
        return _fetch_payload.decode(unwrap(job.data)[1])
    except (ValueError, RecursionError):  # unreadable: the worker that runs it will say so
        return FetchPayload("")


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
        key=found.key or job.key or "",
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
