"""`/metrics`: the depths of the queues, the budgets' levels and the flows for Prometheus, by the names of workers.

Only what the store knows is here, and the flows whose end this service saw to. What a worker measures of itself is on
the worker's own page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from accoda.budget import BudgetView
from accoda.http.call import Call, Raw
from accoda.http.flow_metrics import flow_metrics_of
from accoda.http.operation import Nothing, Reply, operation
from accoda.model import QueueStats
from accoda.runtime.metrics.lanes import MOST_LANES, lane_samples
from accoda.runtime.metrics.text import PAGE_TYPE, Sample, text_of

Lanes = Annotated[int, Meta(ge=0, le=MOST_LANES, description="lanes of each queue; this counts the jobs of lanes")]


class MetricsQuery(Struct, frozen=True):
    """Of how many lanes of each queue with rules for them the page has the jobs: those with most jobs that wait."""

    lanes: Lanes = 0


@operation(
    "GET",
    "/metrics",
    "Service",
    "Queue depths, budgets and flows for Prometheus",
    queues="own",
    description="What the store knows. What each worker measures of itself is on its own page. `lanes` adds the jobs "
    "of so many lanes of each queue with rules for them.",
    query_example={"lanes": 10},
    replies={
        200: Reply(
            description="The page.",
            content_type="text/plain",
            example='queue_jobs{queue="emails",queue_num="",state="ready"} 3.0\n',
        )
    },
)
async def get_metrics(call: Call[None, MetricsQuery, Nothing]) -> Raw:
    app = call.app
    numbers = {name: handlers.options.number for name, handlers in app.handlers.items()}
    stats = (await app.storage.stats()).queues
    shown = {name: each for name, each in stats.items() if call.identity.has(name)}
    budgets = await app.budget_views() if call.identity.has(None) else {}  # queues share them
    samples = [*_depths(shown, numbers), *_levels(budgets)]
    if call.identity.has(None):  # flows have jobs of any queues
        known = flow_metrics_of(app)
        flows = await known.counts(app.storage)
        samples += [("accoda_flows", (state,), float(count)) for state, count in flows.items()]
        samples += known.ends()
    if call.query.lanes:
        samples += await lane_samples(app.storage, call.identity.has, call.query.lanes)
    return Raw(text_of(samples), PAGE_TYPE)


def _depths(queues: Mapping[str, QueueStats], numbers: Mapping[str, int | None]) -> Iterator[Sample]:
    for name, stats in sorted(queues.items()):
        number = numbers.get(name)
        labels = (name, "" if number is None else str(number))
        for state in ("ready", "delayed", "held", "taken", "dead"):
            yield "queue_jobs", (*labels, state), getattr(stats, state)
        yield "queue_oldest_ready_job_age_seconds", labels, stats.oldest_age if stats.ready else 0.0
        yield "queue_paused", labels, 1 if stats.paused else 0
        yield "queue_expired_leases", labels, stats.expired


def _levels(budgets: Mapping[str, BudgetView]) -> Iterator[Sample]:
    for name, view in sorted(budgets.items()):
        for gauge in ("capacity", "available", "reserved", "used_today"):
            yield f"queue_budget_tokens_{gauge}", (name,), getattr(view, gauge)
        yield "queue_budget_utilisation", (name,), view.utilisation
        yield "queue_budget_closed", (name,), 0 if view.closed_until is None else 1
