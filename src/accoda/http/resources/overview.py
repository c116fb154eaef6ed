"""`/api/v1/workers`, `/budgets`, `/metrics/overview`: what there is to look at beside jobs and queues."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.http.call import Call
from accoda.http.operation import Nothing, Reply, operation
from accoda.http.resources.common import NAME_PATTERN, Items, JobId, Limit, Moment, given
from accoda.operations import budgets, moments, workers
from accoda.operations.budgets import BudgetView, LogPage, UsageView
from accoda.operations.health import Health
from accoda.operations.overview import Overview, Totals, overview
from accoda.operations.views import QueueView
from accoda.operations.workers import ProcessorView, WorkerView

GROUP = "Looks"


class BudgetPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A budget by its name."""

    name: Annotated[str, Meta(pattern=NAME_PATTERN, description="a budget")]


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which lines of a log, and how many at once."""

    since: (
        Annotated[Moment, Meta(description="from this moment on; without it and `after`: the last hour")] | UnsetType
    ) = UNSET
    after: Annotated[JobId, Meta(description="the `next` of the page before")] | UnsetType = UNSET
    limit: Limit = 100


WORKER = WorkerView(
    id="7f3a",
    name="mailer",
    host="host-7",
    pid=4711,
    started_at="2030-01-01T08:00:00.000Z",
    beat_at="2030-01-01T09:00:00.000Z",
    beat_age=1.2,
    queues=["emails"],
    max_processors=1,
    slots=10,
    running=7,
    processors=[
        ProcessorView(queue="emails", jobs=7, slots=10, first_id=41, since="2030-01-01T08:59:59.000Z", busy_for=1.0)
    ],
    ready=True,
)

BUDGET = BudgetView(
    name="keepa",
    capacity=20,
    left=12,
    reserved=5,
    available=7,
    next_refill="2030-01-01T09:01:00.000Z",
    used_today=310,
    refused_today=0,
    utilisation=0.4,
    pace=1.0,
    reservations=[],
    claims=[],
)

USAGE = UsageView(
    id=97,
    at="2030-01-01T08:59:00.000Z",
    operation="deals",
    job_id=41,
    key="Informatica",
    cost=5,
    costs={"keepa": 5},
    duration=0.42,
)

OVERVIEW = Overview(
    at="2030-01-01T09:00:00.000Z",
    totals=Totals(queues=1, ready=3, taken=7, total=10, done=120),
    workers=1,
    slots=10,
    used=7,
    running="7 jobs running, 7 of 10 slots used",
    queues=[QueueView(name="emails", health=Health("healthy"), ready=3, taken=7, total=10, done=120)],
)


@operation(
    "GET",
    "/api/v1/workers",
    GROUP,
    "Running workers",
    description="By their heartbeats: what each works on, and whether it says that something is wrong.",
    replies={200: Reply(description="The workers.", type=Items[WorkerView], example=Items([WORKER]))},
)
async def list_workers(call: Call[None, Nothing, Nothing]) -> Items[WorkerView]:
    return Items(await workers.list(call.app))


@operation(
    "GET",
    "/api/v1/budgets",
    GROUP,
    "Budgets and what they have left",
    replies={200: Reply(description="The budgets.", type=Items[BudgetView], example=Items([BUDGET]))},
)
async def list_budgets(call: Call[None, Nothing, Nothing]) -> Items[BudgetView]:
    return Items(await budgets.list(call.app))


@operation(
    "GET",
    "/api/v1/budgets/{name}",
    GROUP,
    "One budget",
    path_example={"name": "keepa"},
    replies={200: Reply(description="The budget.", type=BudgetView, example=BUDGET)},
    errors=("not-found",),
)
async def get_budget(call: Call[None, Nothing, BudgetPath]) -> BudgetView:
    return await budgets.get(call.app, call.path.name)


@operation(
    "GET",
    "/api/v1/budgets/{name}/log",
    GROUP,
    "What a budget's tokens were used for",
    description="One line for each paid run of a job, oldest first. `operation` is the job's queue, `duration` how "
    "many seconds its call took. A page may have fewer lines than `limit`, or none, and still have a `next`. Lines "
    "are kept for as long as their handler's `log_for` says.",
    path_example={"name": "keepa"},
    query_example={"since": "2030-01-01T08:00:00Z", "limit": 50},
    replies={200: Reply(description="A page.", type=LogPage, example=LogPage([USAGE], 97))},
    errors=("not-found",),
)
async def get_budget_log(call: Call[None, LogQuery, BudgetPath]) -> LogPage:
    query = call.query
    since = None if query.since is UNSET else moments.read("since", query.since)
    return await budgets.log(call.app, call.path.name, since=since, after=given(query.after), limit=query.limit)


@operation(
    "GET",
    "/api/v1/metrics/overview",
    GROUP,
    "The whole store at a glance",
    description="Totals over all queues, workers, and jobs a second over the last minute (`rates`; null: nothing is "
    "recorded). Running jobs and used slots are two numbers: clients of this API run jobs without a slot.",
    replies={200: Reply(description="The store.", type=Overview, example=OVERVIEW)},
)
async def get_overview(call: Call[None, Nothing, Nothing]) -> Overview:
    return await overview(call.app)
