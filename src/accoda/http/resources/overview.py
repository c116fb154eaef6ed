"""`/api/v1/workers`, `/budgets`, `/demands`, `/metrics/overview`: what there is to look at beside jobs and queues."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accoda.http.call import Call
from accoda.http.operation import Nothing, Reply, operation
from accoda.http.resources.common import NAME_PATTERN, Items, QueuePath
from accoda.operations import budgets, demands, workers
from accoda.operations.budgets import BudgetView
from accoda.operations.demands import DemandView
from accoda.operations.health import Health
from accoda.operations.overview import Overview, Totals, overview
from accoda.operations.views import QueueView
from accoda.operations.workers import ProcessorView, WorkerView

GROUP = "Looks"


class BudgetPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A budget by its name."""

    name: Annotated[str, Meta(pattern=NAME_PATTERN, description="a budget")]


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

DEMAND = DemandView(queue="deals", at="2030-01-01T09:00:00.000Z", depth=2, bands={"0": 2}, created=2, calls=9)

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
    "/api/v1/demands",
    GROUP,
    "Demands in numbers",
    queues="own",
    description="As workers have last stored them; no job is looked at.",
    replies={200: Reply(description="The demands.", type=Items[DemandView], example=Items([DEMAND]))},
)
async def list_demands(call: Call[None, Nothing, Nothing]) -> Items[DemandView]:
    return Items([each for each in await demands.list(call.app) if call.identity.has(each.queue)])


@operation(
    "GET",
    "/api/v1/demands/{name}",
    GROUP,
    "One demand",
    queues="path",
    path_example={"name": "deals"},
    replies={200: Reply(description="The demand.", type=DemandView, example=DEMAND)},
    errors=("not-found",),
)
async def get_demand(call: Call[None, Nothing, QueuePath]) -> DemandView:
    return await demands.get(call.app, call.path.name)


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
