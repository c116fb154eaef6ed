"""`/api/v1/workers`, `/budgets`, `/demands`, `/metrics/overview`: what there is to look at beside jobs and queues."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accoda.admin import budgets, demands, workers
from accoda.admin.budgets import BudgetView
from accoda.admin.demands import DemandView
from accoda.admin.overview import Overview, Totals, overview
from accoda.admin.views import QueueView
from accoda.admin.workers import ProcessorView, WorkerView
from accoda.http.call import Call
from accoda.http.operation import Nothing, Operation, Reply
from accoda.http.resources.common import NAME_PATTERN, Items, QueuePath

GROUP = "Looks"


class BudgetPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A budget by its name."""

    name: Annotated[str, Meta(pattern=NAME_PATTERN, description="a budget")]


async def list_workers(call: Call[None, Nothing, Nothing]) -> Items[WorkerView]:
    return Items(await workers.list(call.app))


async def list_budgets(call: Call[None, Nothing, Nothing]) -> Items[BudgetView]:
    return Items(await budgets.list(call.app))


async def get_budget(call: Call[None, Nothing, BudgetPath]) -> BudgetView:
    return await budgets.get(call.app, call.path.name)


async def list_demands(call: Call[None, Nothing, Nothing]) -> Items[DemandView]:
    return Items(await demands.list(call.app))


async def get_demand(call: Call[None, Nothing, QueuePath]) -> DemandView:
    return await demands.get(call.app, call.path.name)


async def get_overview(call: Call[None, Nothing, Nothing]) -> Overview:
    return await overview(call.app)


WORKER = WorkerView(
    id="7f3a",
    name="mailer",
    host="host-7",
    pid=4711,
    started_at="2030-01-01T08:00:00.000Z",
    beat_at="2030-01-01T09:00:00.000Z",
    beat_age=1.2,
    queues=["emails"],
    max_processors=2,
    busy=1,
    processors=[ProcessorView(queue="emails", jobs=10, first_id=41, since="2030-01-01T08:59:59.000Z", busy_for=1.0)],
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
    totals=Totals(queues=1, ready=3, total=3, done=120),
    workers=1,
    processors=2,
    busy=1,
    queues=[QueueView(name="emails", ready=3, total=3, done=120)],
)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/workers",
        handler=list_workers,
        group=GROUP,
        summary="Workers that live",
        description="By their heartbeats: what each works on, and whether it says that something is wrong.",
        replies={200: Reply(description="The workers.", type=Items[WorkerView], example=Items([WORKER]))},
    ),
    Operation(
        method="GET",
        path="/api/v1/budgets",
        handler=list_budgets,
        group=GROUP,
        summary="Budgets and what they have left",
        replies={200: Reply(description="The budgets.", type=Items[BudgetView], example=Items([BUDGET]))},
    ),
    Operation(
        method="GET",
        path="/api/v1/budgets/{name}",
        handler=get_budget,
        group=GROUP,
        summary="One budget",
        path_type=BudgetPath,
        path_example={"name": "keepa"},
        replies={200: Reply(description="The budget.", type=BudgetView, example=BUDGET)},
        errors=("not-found",),
    ),
    Operation(
        method="GET",
        path="/api/v1/demands",
        handler=list_demands,
        group=GROUP,
        summary="Demands in numbers",
        description="As workers have last stored them; no job is looked at.",
        replies={200: Reply(description="The demands.", type=Items[DemandView], example=Items([DEMAND]))},
    ),
    Operation(
        method="GET",
        path="/api/v1/demands/{name}",
        handler=get_demand,
        group=GROUP,
        summary="One demand",
        path_type=QueuePath,
        path_example={"name": "deals"},
        replies={200: Reply(description="The demand.", type=DemandView, example=DEMAND)},
        errors=("not-found",),
    ),
    Operation(
        method="GET",
        path="/api/v1/metrics/overview",
        handler=get_overview,
        group=GROUP,
        summary="The whole store at a glance",
        description="Totals over all queues, workers, and jobs a second since this service was last asked (`rates`; "
        "null the first time).",
        replies={200: Reply(description="The store.", type=Overview, example=OVERVIEW)},
    ),
)
