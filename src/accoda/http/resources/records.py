"""Histories of queues and budgets, failed runs of a job, and workers that are drained."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accoda.admin import history, runs, workers
from accoda.admin.history import BudgetSeriesView, SeriesView, Span
from accoda.admin.runs import RunView
from accoda.admin.workers import WorkerView
from accoda.http.call import Call
from accoda.http.operation import Nothing, Operation, Reply
from accoda.http.resources.common import Items, JobPath, QueuePath
from accoda.http.resources.looks import WORKER, BudgetPath
from accoda.limits import NAME_RULE

ID_PATTERN = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,255}$"


class SpanQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Over how long."""

    span: Annotated[Span, Meta(description="240 slots of 15 s, 288 of 5 min, or 336 of 30 min")] = "1h"


class WorkerPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker by its id."""

    id: Annotated[str, Meta(pattern=ID_PATTERN, description=f"a worker's id: {NAME_RULE.removeprefix('must be ')}")]


async def get_queue_history(call: Call[None, SpanQuery, QueuePath]) -> SeriesView:
    return await history.series(call.app, call.path.name, call.query.span)


async def get_history(call: Call[None, SpanQuery, Nothing]) -> SeriesView:
    return await history.series(call.app, None, call.query.span)


async def get_budget_history(call: Call[None, SpanQuery, BudgetPath]) -> BudgetSeriesView:
    return await history.budget(call.app, call.path.name, call.query.span)


async def list_runs(call: Call[None, Nothing, JobPath]) -> Items[RunView]:
    return Items(await runs.list(call.app, call.path.id))


async def drain_worker(call: Call[None, Nothing, WorkerPath]) -> WorkerView:
    return await workers.drain(call.app, call.path.id)


async def undrain_worker(call: Call[None, Nothing, WorkerPath]) -> WorkerView:
    return await workers.drain(call.app, call.path.id, False)


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
    "As columns of equal length, a value for every slot from `start` on, `step` seconds apart; null where nobody "
    "recorded. A queue that nobody knows did nothing."
)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/jobs/{id}/runs",
        handler=list_runs,
        group="Jobs",
        summary="Runs of a job that failed",
        description="The last ten that were noted, the oldest first, with the end of their tracebacks; kept for three "
        "days. In a storm of failures some are not noted. What is secret is hidden.",
        path_type=JobPath,
        path_example={"id": 41},
        replies={200: Reply(description="The runs.", type=Items[RunView], example=Items([RUN]))},
        errors=("not-found",),
    ),
    Operation(
        method="GET",
        path="/api/v1/queues/{name}/history",
        handler=get_queue_history,
        group="Queues",
        summary="What happened in a queue",
        description=COLUMNS,
        path_type=QueuePath,
        path_example={"name": "emails"},
        query=SpanQuery,
        query_example={"span": "1h"},
        replies={200: Reply(description="The history.", type=SeriesView, example=SERIES)},
    ),
    Operation(
        method="GET",
        path="/api/v1/metrics/history",
        handler=get_history,
        group="Looks",
        summary="What happened in all queues",
        description=COLUMNS,
        query=SpanQuery,
        query_example={"span": "24h"},
        replies={200: Reply(description="The history.", type=SeriesView, example=SERIES)},
    ),
    Operation(
        method="GET",
        path="/api/v1/budgets/{name}/history",
        handler=get_budget_history,
        group="Looks",
        summary="What became of a budget's tokens",
        description=COLUMNS,
        path_type=BudgetPath,
        path_example={"name": "keepa"},
        query=SpanQuery,
        query_example={"span": "1h"},
        replies={200: Reply(description="The history.", type=BudgetSeriesView, example=TOKENS)},
    ),
    Operation(
        method="POST",
        path="/api/v1/workers/{id}/drain",
        handler=drain_worker,
        group="Looks",
        scope="admin",
        summary="Drain a worker",
        description="It hears of it with its next heartbeat, finishes what it runs and takes nothing more, until it is "
        "un-drained or restarts. `drained` says that nothing runs in it any more, so it can be stopped.",
        path_type=WorkerPath,
        path_example={"id": "host-7-4711-1f2e3d"},
        replies={200: Reply(description="The worker.", type=WorkerView, example=WORKER)},
        errors=("not-found",),
    ),
    Operation(
        method="POST",
        path="/api/v1/workers/{id}/undrain",
        handler=undrain_worker,
        group="Looks",
        scope="admin",
        summary="Let a worker take jobs again",
        path_type=WorkerPath,
        path_example={"id": "host-7-4711-1f2e3d"},
        replies={200: Reply(description="The worker.", type=WorkerView, example=WORKER)},
        errors=("not-found",),
    ),
)
