"""The whole store in numbers."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from accoda.model import QueueStats
from accoda.operations.history.reading import read_sparks
from accoda.operations.history.sparks import Spark
from accoda.operations.host import Host
from accoda.operations.moments import now_of, rfc3339
from accoda.operations.search import hidden_queues
from accoda.operations.views import QueueView
from accoda.runtime.heartbeat import read_heartbeats

LATELY = 4
"""Slots of 15 seconds that a rate is made of: the last minute."""


class Totals(Struct, rename="camel", frozen=True, kw_only=True):
    """All queues together, except system queues."""

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


class Rate(Struct, frozen=True):
    """Jobs done a second, and runs that failed a second, over the last minute."""

    done: float
    failed: float


class Overview(Struct, rename="camel", frozen=True, kw_only=True):
    """`rates` come from the history; None: nothing is recorded."""

    at: str
    totals: Totals
    workers: int
    processors: int
    busy: int
    queues: list[QueueView]
    rates: dict[str, Rate] | None = None


async def overview(host: Host, *, system: bool = False) -> Overview:
    """Totals, queues, workers, and rates of the last minute. `system`: system queues too."""
    store = await host.connections.get()
    found = (await store.stats()).queues
    hidden = frozenset() if system else await hidden_queues(store, found, host.demands)
    stats = {name: each for name, each in found.items() if name not in hidden}
    beats = await read_heartbeats(store)
    return Overview(
        at=rfc3339(await now_of(store)),
        totals=_totals(stats),
        workers=len(beats),
        processors=sum(beat.max_processors for beat in beats),
        busy=sum(each.queue is not None for beat in beats for each in beat.processors),
        queues=[QueueView.of(host, name, stats[name]) for name in sorted(stats)],
        rates=_rates(stats, await read_sparks(store)),
    )


def _totals(queues: dict[str, QueueStats]) -> Totals:
    every = queues.values()
    counts = ("ready", "delayed", "taken", "dead", "total", "done", "retried", "buried", "expired", "paused")
    sums = {name: sum(getattr(each, name) for each in every) for name in counts}
    return Totals(queues=len(queues), oldest_age=max((each.oldest_age for each in every), default=0.0), **sums)


def _rates(names: Iterable[str], sparks: dict[str, Spark]) -> dict[str, Rate] | None:
    if not sparks:
        return None
    idle = Rate(0.0, 0.0)
    return {name: _rate(sparks[name]) if name in sparks else idle for name in sorted(names)}


def _rate(spark: Spark) -> Rate:
    return Rate(round(sum(spark.done[-LATELY:]) / LATELY, 3), round(sum(spark.failed[-LATELY:]) / LATELY, 3))
