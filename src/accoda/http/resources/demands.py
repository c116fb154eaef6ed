"""`/api/v1/demands`: the numbers of a demand, its waiters, and requests to join or leave it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from accoda.demand import Waiter
from accoda.demand.options import Left
from accoda.http.call import Call
from accoda.http.operation import Nothing, Reply, operation
from accoda.http.resources.common import TEXT_PATTERN, Items, JobPath, Moment, QueuePath
from accoda.limits import KEY
from accoda.operations import demands, moments
from accoda.operations.demands import AnswerView, DemandView, WaiterView
from accoda.operations.lanes import LaneName

GROUP = "Demands"

ResultKey = Annotated[
    str,
    Meta(min_length=1, description="which result: of any length", extra_json_schema={"pattern": TEXT_PATTERN}),
]
WaiterId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=KEY,
        description="identifies the waiter among those of the key",
        extra_json_schema={"pattern": TEXT_PATTERN},
    ),
]


class DemandRequest(Struct, rename="camel", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which result is wanted, and by whom. `due`: by when; without it, now. `data` is for `deliver`: a filter, say.

    `freshAfter`: only a result whose fetch began at that moment or later is used. `lane`: that of the fetch which the
    request makes, such as the host that is asked; a fetch that is there already keeps its own.
    """

    key: ResultKey
    waiter: WaiterId
    tier: Annotated[str, Meta(max_length=200, description="one of the demand's tiers")] = "free"
    due: Moment | None = None
    data: Any = None
    fresh_after: Moment | None = None
    lane: LaneName | None = None


class LeaveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which waiter leaves."""

    key: ResultKey
    waiter: WaiterId


class LeaveReply(Struct, frozen=True):
    """cancelled: it was the last waiter, and the fetch is cancelled. left: others remain. absent: it does not wait."""

    what: Left


class WaitersQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of which key."""

    key: ResultKey


DEMAND = DemandView(queue="deals", at="2030-01-01T09:00:00.000Z", depth=2, bands={"normal": 2}, created=2, calls=9)
WAITER = WaiterView(id="automation-7", tier="pro", due="2030-01-01T09:05:00.000Z")
DEALS = {"name": "deals"}
NOT_DECLARED = (
    " The service must run with the app that declares the demand (`accoda serve MODULE:APP`), which says what a "
    "fetch costs and how long its result is fresh."
)


@operation(
    "GET",
    "/api/v1/demands",
    GROUP,
    "Demands in numbers",
    queues="own",
    description="What waits now, and what was counted since each demand was first used.",
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
    path_example=DEALS,
    replies={200: Reply(description="The demand.", type=DemandView, example=DEMAND)},
    errors=("not-found",),
)
async def get_demand(call: Call[None, Nothing, QueuePath]) -> DemandView:
    return await demands.get(call.app, call.path.name)


@operation(
    "POST",
    "/api/v1/demands/{name}/request",
    GROUP,
    "Let a waiter have a result",
    scope="enqueue",
    queues="path",
    description="`cached`: there is a fresh result, and its delivery is enqueued. `stale`: the one that is there is "
    "delivered, and a new one is fetched. `attached`, `created`: it is delivered when it is fetched. A waiter that "
    "asks for a key twice is one waiter, as described the last time." + NOT_DECLARED,
    path_example=DEALS,
    example={"key": "Informatica", "waiter": "automation-7", "tier": "pro", "data": {"minDiscount": 30}},
    replies={
        200: Reply(description="What happens.", type=AnswerView, example=AnswerView(what="attached", id=41, waiters=3))
    },
    errors=("not-found",),
)
async def request_result(call: Call[DemandRequest, Nothing, QueuePath]) -> AnswerView:
    asked = call.body
    due = None if asked.due is None else moments.read("due", asked.due)
    fresh_after = None if asked.fresh_after is None else moments.read("freshAfter", asked.fresh_after)
    waiter = Waiter(asked.waiter, asked.tier, due, asked.data)
    return await demands.request(call.app, call.path.name, asked.key, waiter, fresh_after=fresh_after, lane=asked.lane)


@operation(
    "POST",
    "/api/v1/demands/{name}/leave",
    GROUP,
    "Let a waiter leave",
    scope="enqueue",
    queues="path",
    description="If it was the last one, the fetch is cancelled, whether it waits or runs." + NOT_DECLARED,
    path_example=DEALS,
    example={"key": "Informatica", "waiter": "automation-7"},
    replies={200: Reply(description="What happened.", type=LeaveReply, example=LeaveReply("left"))},
    errors=("not-found",),
)
async def leave_demand(call: Call[LeaveRequest, Nothing, QueuePath]) -> LeaveReply:
    return LeaveReply(await demands.leave(call.app, call.path.name, call.body.key, call.body.waiter))


@operation(
    "GET",
    "/api/v1/demands/{name}/waiters",
    GROUP,
    "The waiters of a key",
    queues="path",
    description="Of the fetch that waits or runs; of its latest 200 entries. None if there is no fetch.",
    path_example=DEALS,
    query_example={"key": "Informatica"},
    replies={200: Reply(description="The waiters.", type=Items[WaiterView], example=Items([WAITER]))},
)
async def list_waiters(call: Call[None, WaitersQuery, QueuePath]) -> Items[WaiterView]:
    return Items(await demands.waiters(call.app, call.path.name, call.query.key))


@operation(
    "GET",
    "/api/v1/jobs/{id}/waiters",
    GROUP,
    "The waiters of a job",
    queues="job",
    description="Of a demand's job, whatever its state: of its latest 200 entries. Other jobs have none.",
    path_example={"id": 41},
    replies={200: Reply(description="The waiters.", type=Items[WaiterView], example=Items([WAITER]))},
    errors=("not-found",),
)
async def list_job_waiters(call: Call[None, Nothing, JobPath]) -> Items[WaiterView]:
    return Items(await demands.waiters_of(call.app, call.path.id))
