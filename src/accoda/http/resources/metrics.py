"""`/metrics`: the depths of the queues, the budgets' levels and the flows for Prometheus, by the names of workers.

Only what the store knows is here, and the flows whose end this service saw to. What a worker measures of itself is on
the worker's own page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from accoda.budget import BudgetView
from accoda.http.call import Call, Raw
from accoda.http.flow_metrics import flow_metrics_of
from accoda.http.operation import Reply, operation
from accoda.model import QueueStats
from accoda.runtime.metrics.families import FAMILIES

PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BY_NAME = {family.name: family for family in FAMILIES}
_ORDER = {family.name: place for place, family in enumerate(FAMILIES)}

Sample = tuple[str, tuple[str, ...], float]


@operation(
    "GET",
    "/metrics",
    "Service",
    "Queue depths, budgets and flows for Prometheus",
    queues="own",
    description="What the store knows. What each worker measures of itself is on its own page.",
    replies={
        200: Reply(
            description="The page.",
            content_type="text/plain",
            example='queue_jobs{queue="emails",queue_num="",state="ready"} 3.0\n',
        )
    },
)
async def get_metrics(call: Call[Any, Any, Any]) -> Raw:
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
    return Raw(page(samples), PAGE_TYPE)


def page(samples: list[Sample]) -> bytes:
    """Samples in Prometheus' text format, each family with its help and kind.

    >>> print(page([("queue_paused", ("emails", ""), 1.0)]).decode(), end="")
    # HELP queue_paused 1 while the queue is paused, else 0.
    # TYPE queue_paused gauge
    queue_paused{queue="emails",queue_num=""} 1.0
    """
    lines: list[str] = []
    said: set[str] = set()
    for name, values, number in sorted(samples, key=lambda sample: _ORDER[_family(sample[0])]):
        family = _BY_NAME[_family(name)]
        if family.name not in said:
            said.add(family.name)
            lines += [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}"]
        names = (*family.labels, "le") if name.endswith("_bucket") else family.labels
        labels = ",".join(f'{label}="{_escaped(text)}"' for label, text in zip(names, values, strict=True))
        lines.append(f"{name}{{{labels}}} {float(number)}")
    return "".join(line + "\n" for line in lines).encode()


def _family(sample: str) -> str:
    """The family of a sample; a histogram has samples of several names.

    >>> _family("queue_paused"), _family("accoda_flow_duration_seconds_bucket")
    ('queue_paused', 'accoda_flow_duration_seconds')
    """
    return sample if sample in _BY_NAME else sample.rpartition("_")[0]


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


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
