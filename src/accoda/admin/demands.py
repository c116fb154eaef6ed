"""Demands in numbers, as workers have last stored them; no job is looked at."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.admin.moments import shown
from accoda.demand.counters import Counts, read_counts
from accoda.demand.standing import QueueMetrics, read_metrics
from accoda.errors import NotFound
from accoda.limits import is_name

if TYPE_CHECKING:
    from accoda.app import App

PREFIX = "demand/"


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
        counted = {name: getattr(counts, name) for name in Counts.__struct_fields__}
        return cls(
            queue=queue,
            at=shown(metrics.at or None),
            depth=metrics.depth,
            oldest_age=metrics.oldest_age,
            mean_wait=metrics.mean_wait,
            bands={str(band): count for band, count in metrics.bands.items()},
            hit_rate=counts.hit_rate,
            **counted,
        )


async def list(app: App) -> builtins.list[DemandView]:
    """Every demand that this app declares or that any process has counted for, by queue."""
    store = await app.connections.get()
    stored = {_queue(document.name) for document in await store.documents(PREFIX)}
    queues = sorted(app.demands.keys() | {queue for queue in stored if is_name(queue)})
    return [DemandView.of(queue, await read_metrics(store, queue), await read_counts(store, queue)) for queue in queues]


async def get(app: App, queue: str) -> DemandView:
    """One demand."""
    for demand in await list(app):
        if demand.queue == queue:
            return demand
    raise NotFound("demand", queue, "an app declares it with app.demand(…)")


def _queue(name: str) -> str:
    """The queue of a document such as `demand/deals/metrics`; empty for others."""
    middle, _, kind = name.removeprefix(PREFIX).rpartition("/")
    return middle if kind in ("metrics", "counts") else ""
