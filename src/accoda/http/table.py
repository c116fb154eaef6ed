"""Every operation of the service: the one list from which routes, checks and the OpenAPI document are made."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from accoda.http.operation import Operation

MODULES = (
    "accoda.http.resources.jobs_table",
    "accoda.http.resources.why",
    "accoda.http.resources.bulk",
    "accoda.http.resources.queues",
    "accoda.http.resources.dead_table",
    "accoda.http.resources.schedules_table",
    "accoda.http.work",
    "accoda.http.resources.webhooks",
    "accoda.http.resources.looks",
    "accoda.http.resources.records",
    "accoda.http.resources.health",
    "accoda.http.resources.metrics",
    "accoda.http.resources.documents",
)
"""Each has `OPERATIONS`. The order is that of the docs page."""


@cache
def operations() -> tuple[Operation, ...]:
    """All of them, in the order of the docs page."""
    return tuple(operation for name in MODULES for operation in import_module(name).OPERATIONS)
