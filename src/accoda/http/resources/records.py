"""Histories of queues and budgets, failed runs of a job, and workers that are drained."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accoda.http.call import Call
from accoda.http.operation import Nothing, Reply, operation
from accoda.http.resources.common import Items, JobPath, QueuePath
from accoda.http.resources.overview import WORKER, BudgetPath
from accoda.limits import NAME_RULE
from accoda.operations import jobs, workers
from accoda.operations.history import reading as history
from accoda.operations.history.reading import BudgetSeriesView, SeriesView
from accoda.operations.history.ring import Span
from accoda.operations.jobs import RunView
from accoda.operations.workers import WorkerView

ID_PATTERN = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,255}$"


class SpanQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Over how long."""

    span: Annotated[Span, Meta(description="240 slots of 15 s, 288 of 5 min, or 336 of 30 min")] = "1h"


class WorkerPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker by its id."""

    id: Annotated[str, Meta(pattern=ID_PATTERN, description=f"a worker's id: {NAME_RULE.removeprefix('must be ')}")]


SERIES = SeriesView(
    queue="emails",
    span="1h",
    step=15.0,
    start="2030-01-01T08:00:00.000Z",
    done=[None, 2.0],
    retried=[None, 0.0],
    buried=[None, 0.0],
    expired=[None, 0.0],
    ready=[None, 3],
    delayed=[None, 1],
    taken=[None, 2],
    dead=[None, 0],
    oldest_age=[None, 1.5],
    waited=[None, 0.4],
    ran=[None, 0.12],
    runs=[None, 30],
)

TOKENS = BudgetSeriesView(
    name="keepa",
    span="1h",
    step=15.0,
    start="2030-01-01T08:00:00.000Z",
    left=[None, 12.0],
    reserved=[None, 5.0],
    used=[None, 3.0],
    refused=[None, 0],
)

RUN = RunView(
    attempt=0,
    worker="host-7-4711-1f2e3d",
    started_at="2030-01-01T09:00:00.000Z",
    ended_at="2030-01-01T09:00:30.000Z",
    ran_for=30.0,
    outcome="retry",
    error="TimeoutError: no answer after 30 s",
    traceback="Traceback (most recent call last):\n  …\nTimeoutError: no answer after 30 s\n",
)

COLUMNS = (
    "As columns of equal length, a value for every slot from `start` on, `step` seconds apart; null where "
    "nothing was recorded. An unknown queue did nothing."
)


@operation(
    "GET",
    "/api/v1/queues/{name}/history",
    "Queues",
    "What happened in a queue",
    queues="path",
    description=COLUMNS,
    path_example={"name": "emails"},
    query_example={"span": "1h"},
    replies={200: Reply(description="The history.", type=SeriesView, example=SERIES)},
)
async def get_queue_history(call: Call[None, SpanQuery, QueuePath]) -> SeriesView:
    return await history.series(call.app, call.path.name, call.query.span)


@operation(
    "GET",
    "/api/v1/metrics/history",
    "Looks",
    "What happened in all queues",
    description=COLUMNS,
    query_example={"span": "24h"},
    replies={200: Reply(description="The history.", type=SeriesView, example=SERIES)},
)
async def get_history(call: Call[None, SpanQuery, Nothing]) -> SeriesView:
    return await history.series(call.app, None, call.query.span)


@operation(
    "GET",
    "/api/v1/budgets/{name}/history",
    "Looks",
    "What became of a budget's tokens",
    description=COLUMNS,
    path_example={"name": "keepa"},
    query_example={"span": "1h"},
    replies={200: Reply(description="The history.", type=BudgetSeriesView, example=TOKENS)},
)
async def get_budget_history(call: Call[None, SpanQuery, BudgetPath]) -> BudgetSeriesView:
    return await history.budget(call.app, call.path.name, call.query.span)


@operation(
    "GET",
    "/api/v1/jobs/{id}/runs",
    "Jobs",
    "Runs of a job that failed",
    queues="job",
    description="The last ten that were noted, the oldest first, with the end of their tracebacks; kept for three "
    "days. In a storm of failures some are not noted. What is secret is hidden.",
    path_example={"id": 41},
    replies={200: Reply(description="The runs.", type=Items[RunView], example=Items([RUN]))},
    errors=("not-found",),
)
async def list_runs(call: Call[None, Nothing, JobPath]) -> Items[RunView]:
    return Items(await jobs.failed_runs(call.app, call.path.id))


@operation(
    "POST",
    "/api/v1/workers/{id}/drain",
    "Looks",
    "Drain a worker",
    scope="admin",
    description="It hears of it with its next heartbeat, finishes what it runs and takes nothing more, until it is "
    "un-drained or restarts. `drained` says that nothing runs in it any more, so it can be stopped.",
    path_example={"id": "host-7-4711-1f2e3d"},
    replies={200: Reply(description="The worker.", type=WorkerView, example=WORKER)},
    errors=("not-found",),
)
async def drain_worker(call: Call[None, Nothing, WorkerPath]) -> WorkerView:
    return await workers.drain(call.app, call.path.id)


@operation(
    "POST",
    "/api/v1/workers/{id}/undrain",
    "Looks",
    "Let a worker take jobs again",
    scope="admin",
    path_example={"id": "host-7-4711-1f2e3d"},
    replies={200: Reply(description="The worker.", type=WorkerView, example=WORKER)},
    errors=("not-found",),
)
async def undrain_worker(call: Call[None, Nothing, WorkerPath]) -> WorkerView:
    return await workers.drain(call.app, call.path.id, False)
