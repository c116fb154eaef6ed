"""The whole store at a glance."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from accoda.admin.moments import shown
from accoda.admin.store import now_of
from accoda.admin.views import QueueView
from accoda.model import QueueStats
from accoda.runtime.heartbeat import read_heartbeats
from accoda.search import kept_by_us

if TYPE_CHECKING:
    from accoda.app import App

LEAST, MOST = 1.0, 300.0
"""Seconds between two looks of which a rate is made; of an older look it would say too little of now."""


class Totals(Struct, rename="camel", frozen=True, kw_only=True):
    """All queues together, but for our own."""

    queues: int = 0
    ready: int = 0
    delayed: int = 0
    taken: int = 0
    dead: int = 0
    total: int = 0
    done: int = 0
    retried: int = 0
    buried: int = 0
    expired: int = 0
    paused: int = 0
    oldest_age: float = 0.0


class Rate(Struct, rename="camel", frozen=True, kw_only=True):
    """Jobs a second since the look before this one, `over` seconds ago."""

    done: float
    retried: float
    buried: float
    over: float


class Overview(Struct, rename="camel", frozen=True, kw_only=True):
    """`rates` are of queues that this process has looked at before; None: this was its first look, or a late one."""

    at: str
    totals: Totals
    workers: int
    processors: int
    busy: int
    queues: list[QueueView]
    rates: dict[str, Rate] | None = None


class _Look(Struct, frozen=True):
    at: float
    queues: dict[str, QueueStats]


_looks: WeakKeyDictionary[Any, _Look] = WeakKeyDictionary()
"""The last look of each app."""


async def overview(app: App, *, system: bool = False) -> Overview:
    """Totals, queues, workers, and rates since this process's last look. `system`: our own queues as well."""
    store = await app.connections.get()
    found = (await store.stats()).queues
    hidden = frozenset() if system else await kept_by_us(store, found, app.demands)
    stats = {name: each for name, each in found.items() if name not in hidden}
    beats = await read_heartbeats(store)
    return Overview(
        at=shown(await now_of(store)) or "",
        totals=_totals(stats),
        workers=len(beats),
        processors=sum(beat.max_processors for beat in beats),
        busy=sum(each.queue is not None for beat in beats for each in beat.processors),
        queues=[QueueView.of(app, name, stats[name]) for name in sorted(stats)],
        rates=_rates(app, stats, time.monotonic()),
    )


def _totals(queues: dict[str, QueueStats]) -> Totals:
    every = queues.values()
    counts = ("ready", "delayed", "taken", "dead", "total", "done", "retried", "buried", "expired", "paused")
    sums = {name: sum(getattr(each, name) for each in every) for name in counts}
    return Totals(queues=len(queues), oldest_age=max((each.oldest_age for each in every), default=0.0), **sums)


def _rates(app: App, queues: dict[str, QueueStats], now: float) -> dict[str, Rate] | None:
    before = _looks.get(app)
    if before is None or not now - before.at < LEAST:
        _looks[app] = _Look(now, queues)
    if before is None or not LEAST <= now - before.at <= MOST:
        return None
    over = now - before.at
    return {name: _rate(before.queues.get(name, QueueStats()), each, over) for name, each in queues.items()}


def _rate(old: QueueStats, new: QueueStats, over: float) -> Rate:
    # Counters begin anew where a store was emptied: no rate is below nothing.
    def speed(name: str) -> float:
        grown: int = getattr(new, name) - getattr(old, name)
        return round(max(0, grown) / over, 3)

    return Rate(done=speed("done"), retried=speed("retried"), buried=speed("buried"), over=round(over, 3))
