"""`/api/v1/queues/{name}/lanes`: the rules for the lanes of a queue, which lanes wait and run; to change the rules."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from accoda.http.call import Call
from accoda.http.operation import Nothing, Reply, operation
from accoda.http.resources.common import QueueName, QueuePath, given
from accoda.limits import COST
from accoda.model import LANE_LIMIT, WEIGHT
from accoda.operations import lanes
from accoda.operations.lanes import MOST, SHOWN, LaneName, LanesView, LaneView, RulesView

GROUP = "Queues"

LaneLimit = Annotated[int, Meta(ge=0, le=LANE_LIMIT, description="jobs of a lane in line or running; 0 pauses it")]
Weight = Annotated[float, Meta(ge=1 / WEIGHT, le=WEIGHT, description="turns that it has where others have one")]
Total = Annotated[int, Meta(ge=0, le=COST, description="jobs of the queue that run at once")]
Rows = Annotated[int, Meta(ge=0, le=MOST, description="lanes in the answer")]


class LanesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many lanes are listed."""

    limit: Rows = SHOWN


class ResetQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of which lane the changes are forgotten; without it, of all."""

    lane: LaneName | UnsetType = UNSET


class RulesChange(Struct, rename="camel", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What shall be otherwise: what is left out stays. `limits` and `weights` change the lanes that they name, and no
    others. A limit or total of null is none; `shared` of null ends the sharing of limits with other queues."""

    limit: LaneLimit | UnsetType | None = UNSET
    limits: dict[LaneName, LaneLimit | None] | UnsetType = UNSET
    fair: bool | UnsetType = UNSET
    weights: dict[LaneName, Weight] | UnsetType = UNSET
    by_cost: bool | UnsetType = UNSET
    total: Total | UnsetType | None = UNSET
    shared: QueueName | UnsetType | None = UNSET


EMAILS = {"name": "emails"}

VIEW = LanesView(
    queue="emails",
    rules=RulesView(limit=2, limits={"spammer": 0}, fair=True, shared="mail"),
    shared_with=["newsletters"],
    ready=3,
    held=5,
    taken=2,
    runs=200,
    count=2,
    lanes=[
        LaneView(lane="customer-7", ready=1, held=4, taken=1, share=0.6, limit=2, runs=90, runs_share=0.45),
        LaneView(lane="spammer", ready=0, held=1, taken=0, share=0.1, limit=0),
    ],
)


def _found(text: str) -> dict[int, Reply]:
    return {200: Reply(description=text, type=LanesView, example=VIEW)}


@operation(
    "GET",
    "/api/v1/queues/{name}/lanes",
    GROUP,
    "The lanes of a queue, and its rules for them",
    queues="path",
    description="The lanes with most jobs ready or held first, each with its share of the runs of the last hour; "
    "behind them those that only ran. This counts the jobs that have a lane; a limit of 0 reads the rules alone.",
    path_example=EMAILS,
    query_example={"limit": 20},
    replies=_found("The lanes."),
    errors=("not-found",),
)
async def get_lanes(call: Call[None, LanesQuery, QueuePath]) -> LanesView:
    return _seen(call, await lanes.get(call.app, call.path.name, call.query.limit))


@operation(
    "PATCH",
    "/api/v1/queues/{name}/lanes",
    GROUP,
    "Change the rules for the lanes of a queue",
    scope="admin",
    queues="path",
    description="At once and for all workers, whatever the code declares, until it is reset. A limit of 0 pauses a "
    "lane: its jobs are held. The queues whose rules have the same `shared` share their limits; on a Redis Cluster it "
    "must be the queue's family, the part of its name before the first dot. A token for some queues cannot set it.",
    path_example=EMAILS,
    example={"limit": 2, "limits": {"spammer": 0, "customer-7": None}, "fair": True},
    replies=_found("The lanes with the new rules."),
    errors=("not-found",),
)
async def change_lanes(call: Call[RulesChange, Nothing, QueuePath]) -> LanesView:
    changes: dict[str, Any] = {name: value for name, value in asdict(call.body).items() if value is not UNSET}
    if changes.get("shared") is not None:
        call.check_queue(None)  # the limits of this queue would be those of others, too
    return _seen(call, await lanes.change(call.app, call.path.name, changes))


@operation(
    "DELETE",
    "/api/v1/queues/{name}/lanes",
    GROUP,
    "Forget changes of the rules for the lanes of a queue",
    scope="admin",
    queues="path",
    description="The rules are then those that the code declares. With `lane`, only what was changed for it.",
    path_example=EMAILS,
    query_example={"lane": "customer-7"},
    replies=_found("The lanes with the rules as declared."),
    errors=("not-found",),
)
async def reset_lanes(call: Call[None, ResetQuery, QueuePath]) -> LanesView:
    return _seen(call, await lanes.reset(call.app, call.path.name, given(call.query.lane)))


def _seen(call: Call[Any, Any, Any], found: LanesView) -> LanesView:
    """Without the names of queues that the caller has no right to."""
    queues = call.identity.queues
    return (
        found if queues is None else replace(found, shared_with=[name for name in found.shared_with if name in queues])
    )
