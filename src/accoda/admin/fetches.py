"""The fetches of a demand: which keys wait, who waits for them, how fresh what is cached is. All looks are bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from accoda.admin.latest import latest
from accoda.admin.moments import shown
from accoda.admin.store import now_of
from accoda.demand.records import Errand, read_cached
from accoda.demand.score import Band, band
from accoda.demand.waiters import present, read_entries
from accoda.envelope import unwrap
from accoda.model import JobInfo, State

if TYPE_CHECKING:
    from accoda.app import App

MOST = 50
MOST_WAITERS = 200
_STATES: tuple[State, ...] = ("taken", "ready", "delayed")

Freshness = Literal["fresh", "stale", "old", "unknown"]


class FetchView(Struct, rename="camel", frozen=True, kw_only=True):
    """A fetch that waits or runs. `waiters` counts entries, those who left included; `score` is its rank: lower is
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


class CachedView(Struct, rename="camel", frozen=True, kw_only=True):
    """A result that is kept. "old": it is there for its deliveries only; "unknown": this app does not declare the
    demand, so it does not know for how long a result is fresh."""

    key: str
    fetched_at: str
    age: float
    freshness: Freshness
    fresh_until: str | None = None
    kept_until: str


class WaiterView(Struct, rename="camel", frozen=True, kw_only=True):
    """Who waits for a result, since the demand was asked; `due`: by when he wants it."""

    id: str
    tier: str
    due: str | None = None
    delivered: bool = True


async def waiting(app: App, queue: str, most: int = MOST) -> list[FetchView]:
    """Fetches that run, then those that wait, the most urgent first, of the oldest `most` in each state."""
    store = await app.connections.get()
    found = [_fetch(job) for state in _STATES for job in await store.browse(queue, state, None, most)]
    return sorted(found, key=lambda view: (view.state != "taken", view.state == "delayed", view.score, view.id))[:most]


async def cached(app: App, queue: str, most: int = MOST) -> list[CachedView]:
    """Results that are kept, the newest first, of the newest `most`."""
    store = await app.connections.get()
    now = await now_of(store)
    jobs = await latest(store, f"{queue}.cache", "delayed", most)
    views = [view for job in jobs if (view := _cached(app, queue, job, now)) is not None]
    return sorted(views, key=lambda view: (view.fetched_at, view.key), reverse=True)


async def waiters(app: App, queue: str, key: str, count: int) -> list[WaiterView]:
    """Those who wait for the fetch of a key, of the latest 200 entries; `count` is how many it has."""
    store = await app.connections.get()
    look = await store.peek(queue, key, after=max(0, count - MOST_WAITERS))
    entries = present(read_entries(look.waiters)).values()
    return [
        WaiterView(id=entry.id, tier=entry.tier, due=shown(entry.due), delivered=entry.kind == 0)
        for entry in list(entries)[:MOST_WAITERS]
    ]


def _fetch(job: JobInfo) -> FetchView:
    return FetchView(
        id=job.id,
        key=job.key or "",
        state=job.state,
        waiters=job.waiters,
        score=job.rank,
        band=band(job.rank),
        cost=job.cost,
        prefetch=_is_prefetch(job),
        attempts=job.attempts,
        created_at=shown(job.created_at) or "",
        reason=job.reason or None,
    )


def _is_prefetch(job: JobInfo) -> bool:
    try:
        return _errand.decode(unwrap(job.data)[1]).prefetch
    except (ValueError, RecursionError):  # it cannot be read, and whoever runs it will say so
        return False


def _cached(app: App, queue: str, job: JobInfo, now: int) -> CachedView | None:
    found = read_cached(job)
    if found is None:
        return None
    demand = app.demands.get(queue)
    age = max(0, now - found.fetched_at) / 1000
    fresh_until = None if demand is None else found.fetched_at + demand.fresh_ms
    freshness: Freshness = "unknown"
    if demand is not None:
        freshness = "fresh" if age < demand.fresh_for else "stale" if age < demand.keep_for else "old"
    return CachedView(
        key=job.key or "",
        fetched_at=shown(found.fetched_at) or "",
        age=age,
        freshness=freshness,
        fresh_until=shown(fresh_until),
        kept_until=shown(job.start_time) or "",
    )


_errand = msgspec.msgpack.Decoder(Errand)
