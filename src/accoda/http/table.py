"""Every operation of the service: the one list from which routes, checks and the OpenAPI document are made."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from accoda.http.operation import TABLE, Operation

MODULES = (
    "accoda.http.resources.jobs",
    "accoda.http.resources.why",
    "accoda.http.resources.bulk",
    "accoda.http.resources.queues",
    "accoda.http.resources.lanes",
    "accoda.http.resources.dead",
    "accoda.http.resources.flows",
    "accoda.http.resources.schedules",
    "accoda.http.worker_api",
    "accoda.http.resources.webhooks",
    "accoda.http.resources.demands",
    "accoda.http.resources.overview",
    "accoda.http.resources.records",
    "accoda.http.resources.health",
    "accoda.http.resources.metrics",
    "accoda.http.resources.documents",
)
"""The modules that define operations, in the order of the docs page."""


@cache
def operations() -> tuple[Operation, ...]:
    """All of them, in the order of the docs page."""
    order = {import_module(name).__name__: place for place, name in enumerate(MODULES)}
    return tuple(sorted(TABLE, key=lambda each: order[each.handler.__module__]))
