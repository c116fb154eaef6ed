"""`/api/v1/webhooks/deliveries`: what was sent where, and what came back."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import asdict

from accoda.http.call import Answer, Call
from accoda.http.operation import Header, Link, Nothing, Reply, operation
from accoda.http.resources.common import MOST_ID, JobId, JobPath, Limit
from accoda.model import State
from accoda.webhooks.log import Delivery, deliveries, find, redeliver

GROUP = "Webhooks"


class DeliveryDetail(Delivery, rename="camel", frozen=True, kw_only=True):
    """A call with the message that it sends; null where it cannot be read."""

    body: Raw | None = None


class DeliveryPage(Struct, frozen=True):
    """Some calls, the newest first. `next` is the `before` of the page after it; null: this was the last."""

    items: list[Delivery]
    next: int | None = None


class DeliveriesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which calls, and how many at once."""

    state: Annotated[State, Meta(description="`delayed`: will retry; `dead`: no retries left")] | UnsetType = UNSET
    before: Annotated[int, Meta(ge=1, le=MOST_ID, description="the `next` of the page before")] | UnsetType = UNSET
    limit: Limit = 50


class Resent(Struct, frozen=True):
    """The call that does it: the same one, or a copy of one that was delivered."""

    id: JobId


CALL = Delivery(
    id=77,
    state="done",
    url="https://example.com/hooks",
    event="job.done",
    message="msg_2f1c",
    job=41,
    queue="emails",
    tries=1,
    status=204,
    ms=38,
    created_at="2030-01-01T09:00:00.000Z",
    ended_at="2030-01-01T09:00:00.050Z",
)

ONE = {"id": 77}


@operation(
    "GET",
    "/api/v1/webhooks/deliveries",
    GROUP,
    "Calls of webhooks, the newest first",
    queues="own",
    query_example={"state": "dead", "limit": 50},
    replies={
        200: Reply(
            description="A page.",
            type=DeliveryPage,
            example=DeliveryPage([CALL]),
            links=(Link("getDelivery", {"id": "$response.body#/items/0/id"}),),
        )
    },
)
async def list_deliveries(call: Call[None, DeliveriesQuery, Nothing]) -> DeliveryPage:
    query = call.query
    state = None if query.state is UNSET else query.state
    before = None if query.before is UNSET else query.before
    found = await deliveries(call.app.storage, state=state, before=before, limit=query.limit)
    more = found[-1].id if len(found) == query.limit and found[-1].id > 1 else None
    return DeliveryPage([each for each in found if call.identity.has(each.queue)], more)


@operation(
    "GET",
    "/api/v1/webhooks/deliveries/{id}",
    GROUP,
    "One call, with its message",
    queues="own",
    path_example=ONE,
    replies={200: Reply(description="The call.", type=DeliveryDetail)},
    errors=("not-found",),
)
async def get_delivery(call: Call[None, Nothing, JobPath]) -> DeliveryDetail:
    found, body = await find(call.app.storage, call.path.id)
    call.check_queue(found.queue)
    return DeliveryDetail(**asdict(found), body=None if body is None else Raw(body))


@operation(
    "POST",
    "/api/v1/webhooks/deliveries/{id}/redeliver",
    GROUP,
    "Send a call again",
    scope="admin",
    queues="own",
    description="With the same message id, so that a receiver that has it already can tell.",
    path_example=ONE,
    replies={
        202: Reply(
            description="It is on its way.",
            type=Resent,
            example=Resent(78),
            headers=(Header(name="Location", description="The path of the call."),),
        )
    },
    errors=("not-found", "conflict"),
)
async def redeliver_delivery(call: Call[None, Nothing, JobPath]) -> Answer:
    call.check_queue((await find(call.app.storage, call.path.id))[0].queue)
    id = await redeliver(call.app.storage, call.path.id)
    return Answer(Resent(id), None, (("location", f"/api/v1/webhooks/deliveries/{id}"),))
