"""`/api/v1/flows`: jobs that depend on each other: start them, see how they are doing, stop and repair them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal
from urllib.parse import quote

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from accoda.errors import NotFound, TooLarge
from accoda.flows.model import KEY_LENGTH, NAME_LENGTH, FlowState
from accoda.http.call import Answer, Call
from accoda.http.operation import H, Header, Link, Nothing, Reply, operation
from accoda.http.resources.common import OWN_PATTERN, TEXT_PATTERN, WEBHOOK_URL, Count, Cursor, Limit, given, present
from accoda.http.resources.jobs import named_and_allowed, warning
from accoda.operations import flows, new_flows
from accoda.operations.flows import FlowDetail, FlowView, NodeView, NodeWhy
from accoda.operations.new_flows import LABEL, NewFlow
from accoda.operations.views import Page

GROUP = "Flows"
IN_PATH = "^[^\\x00-\\x1f\\x7f-\\x9f/\\\\]+$"
"""What a name in a path is made of: a slash and a backslash are not let through."""


def _text(longest: int, description: str, pattern: str = LABEL) -> Meta:
    return Meta(min_length=1, max_length=longest, description=description, pattern=pattern)


FlowId = Annotated[str, _text(KEY_LENGTH, "the flow's id: its key, if it has one", IN_PATH)]


class FlowsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which flows, and how many at once."""

    state: Annotated[FlowState, Meta(description="only those in this state")] | UnsetType = UNSET
    name: Annotated[str, _text(NAME_LENGTH, "only those of this name")] | UnsetType = UNSET
    limit: Limit = 50
    cursor: Cursor | UnsetType = UNSET


class FlowPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A flow by its id."""

    id: FlowId


class NodePath(Struct, frozen=True, forbid_unknown_fields=True):
    """A node of a flow by its name."""

    id: FlowId
    name: Annotated[str, _text(NAME_LENGTH, "the node's name", IN_PATH)]


class NodesQuery(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which of its nodes."""

    nodes_after: Annotated[str, _text(NAME_LENGTH, "the `nodesNext` of the page before")] | UnsetType = UNSET
    nodes_limit: Annotated[int, Meta(ge=1, le=1000, description="nodes on a page")] = 1000


class StartedFlow(Struct, frozen=True):
    """What became of a flow. `kept`: one with its key was there. `warning`: no running worker would take some of its
    jobs; they wait for one."""

    id: str
    what: Literal["created", "kept"]
    warning: str | UnsetType = UNSET


VIEW = FlowView(
    id="order-17",
    name="order",
    state="failed",
    created_at="2030-01-01T09:00:00.000Z",
    ended_at="2030-01-01T09:00:04.000Z",
    counts={"done": 1, "dead": 1, "skipped": 1},
    ended=3,
    total=3,
)
DETAIL = FlowDetail(
    **asdict(VIEW),
    nodes=[
        NodeView(name="charge", state="done", queue="payments", job_id=41, result={"paid": True}),
        NodeView(
            name="reserve",
            state="dead",
            queue="stock",
            job_id=42,
            after=["charge"],
            error="failed 5 times, the last time with LookupError: out of stock",
        ),
        NodeView(name="ship", state="skipped", queue="parcels", after=["reserve"]),
    ],
)
ONE = {"id": "order-17"}
ORDER = {
    "name": "order",
    "key": "order-17",
    "nodes": [
        {"name": "charge", "queue": "payments", "payload": {"order": 17}},
        {"name": "reserve", "queue": "stock", "payload": {"order": 17}, "after": ["charge"]},
        {"name": "ship", "queue": "parcels", "payload": {"order": 17}, "after": ["reserve"]},
    ],
}

RULES: dict[str, Any] = {
    "properties": {
        "nodes": {
            "items": {
                "properties": {
                    "queue": {"pattern": OWN_PATTERN},
                    "webhookUrl": {"anyOf": [{"type": "string", **WEBHOOK_URL}, {"type": "null"}]},
                    "secretFields": {"items": {"pattern": TEXT_PATTERN}},
                },
                "not": {
                    "anyOf": [
                        present("delay", "scheduledAt"),
                        {**present("webhookOn"), "not": present("webhookUrl")},
                    ]
                },
            }
        }
    },
    "not": present("deadline", "expiresIn"),
}
LOCATION = Header(name="Location", description="The path of the flow.")
AFTER = tuple(Link(name, {"id": "$response.body#/id"}) for name in ("getFlow", "cancelFlow", "retryFlow", "closeFlow"))


def _started(what: Literal["created", "kept"], description: str) -> Reply:
    example = StartedFlow("order-17", what)
    return Reply(description=description, type=StartedFlow, example=example, headers=(LOCATION,), links=AFTER)


@operation(
    "POST",
    "/api/v1/flows",
    GROUP,
    "Start a flow",
    scope="enqueue",
    queues="own",
    description="Stores all of its nodes in one step. A node starts when the nodes that it comes `after` have ended as "
    "its `when` says; they are named before it. `key` is the flow's id and starts it only once: as long as a flow with "
    "that key is known, the answer is 200 with that one. Without a `queue` a node's job goes where one of its `type` "
    "would go alone. What is wrong is named with its place: `nodes[3].after`.",
    rules=RULES,
    example=ORDER,
    replies={
        201: _started("created", "It is stored."),
        200: _started("kept", "A flow with this key was there."),
    },
)
async def start_flow(call: Call[NewFlow, Nothing, Nothing]) -> Answer:
    asked, most = call.body, call.options.max_batch
    if len(asked.nodes) > most:
        raise TooLarge("nodes", len(asked.nodes), most, "nodes", "let a node add the others when it runs")
    jobs = await named_and_allowed(call, [node.job() for node in asked.nodes], "nodes")
    if asked.key is not None and call.identity.queues is not None:
        with suppress(NotFound):  # it is new
            await _check(call, asked.key)
    id, created = await new_flows.start(call.app, asked, jobs)
    made = StartedFlow(id, "created" if created else "kept", await warning(call, jobs))
    return Answer(made, 201 if created else 200, (("location", f"/api/v1/flows/{quote(id, safe='')}"),))


@operation(
    "GET",
    "/api/v1/flows",
    GROUP,
    "List flows",
    description="First those that run without a deadline, and failed ones that can be retried; then the others, by the "
    "moment of their deadline or until which they are kept. A page may have fewer items than `limit`, or none, and "
    "still have a `next`: no request looks at more than 1,000 flows. The last page has `next` null.",
    query_example={"state": "failed", "limit": 50},
    replies={
        200: Reply(
            description="A page.",
            type=Page[FlowView],
            example=Page([VIEW], "lLBhY2NvZGEuZmxvd3MubG9n"),
            links=(Link("listFlows", {"cursor": "$response.body#/next"}),),
        )
    },
)
async def list_flows(call: Call[None, FlowsQuery, Nothing]) -> Page[FlowView]:
    query = call.query
    return await flows.page(
        call.app, state=given(query.state), name=given(query.name), limit=query.limit, cursor=given(query.cursor)
    )


@operation(
    "GET",
    "/api/v1/flows/{id}",
    GROUP,
    "A flow with its nodes",
    queues="own",
    description="In the order in which they were added, a page at a time: `nodesNext` is the `nodesAfter` of the next "
    "one. Secret fields of results are shown as `•••`.",
    path_example=ONE,
    query_example={"nodesLimit": 100},
    replies={
        200: Reply(
            description="The flow.",
            type=FlowDetail,
            example=DETAIL,
            links=(Link("getFlow", {"nodesAfter": "$response.body#/nodesNext"}),),
        )
    },
    errors=("not-found",),
)
async def get_flow(call: Call[None, NodesQuery, FlowPath]) -> FlowDetail:
    await _check(call, call.path.id)
    return await flows.get(call.app, call.path.id, after=given(call.query.nodes_after), limit=call.query.nodes_limit)


def _action(
    name: str, summary: str, description: str, *, status: int, answer: str, example: FlowView | Count
) -> Callable[[H], H]:
    """What changes one flow: it must be there, in a state in which that can be done."""
    return operation(
        "POST",
        f"/api/v1/flows/{{id}}/{name}",
        GROUP,
        summary,
        scope="admin",
        queues="own",
        description=description,
        path_example=ONE,
        replies={status: Reply(description=answer, type=type(example), example=example)},
        errors=("not-found", "conflict"),
    )


@_action(
    "cancel",
    "Cancel a flow",
    "What waits is taken back, what runs is told within about a second and its outcome is refused; then "
    "the nodes for `on_cancel` run. A flow that has ended is a conflict.",
    status=202,
    answer="It is noted. The flow as it is now.",
    example=VIEW,
)
async def cancel_flow(call: Call[None, Nothing, FlowPath]) -> FlowView:
    await _check(call, call.path.id)
    return await flows.cancel(call.app, call.path.id)


@_action(
    "retry",
    "Revive the dead jobs of a flow",
    "They are ready again, and the flow goes on from there. A flow without dead jobs is a conflict.",
    status=200,
    answer="How many were revived.",
    example=Count(1),
)
async def retry_flow(call: Call[None, Nothing, FlowPath]) -> Count:
    await _check(call, call.path.id)
    return Count(await flows.retry(call.app, call.path.id))


@_action(
    "close",
    "Close a batch",
    "One whose producer died before it could: it gets no more members. Anything else is a conflict.",
    status=202,
    answer="It is noted. The batch as it is now.",
    example=VIEW,
)
async def close_flow(call: Call[None, Nothing, FlowPath]) -> FlowView:
    await _check(call, call.path.id)
    return await flows.close(call.app, call.path.id)


@operation(
    "GET",
    "/api/v1/flows/{id}/nodes/{name}/why",
    GROUP,
    "What a node of a flow waits for",
    queues="own",
    description="In a sentence. Of a node whose job is stored, ask for that job: `/api/v1/jobs/{jobId}/why`.",
    path_example={"id": "order-17", "name": "ship"},
    replies={
        200: Reply(
            description="The answer.",
            type=NodeWhy,
            example=NodeWhy(
                flow="order-17", node="ship", state="waiting", line="waits for 1 of 1: reserve (running 4 s)"
            ),
        )
    },
    errors=("not-found",),
)
async def why_node(call: Call[None, Nothing, NodePath]) -> NodeWhy:
    await _check(call, call.path.id)
    return await flows.why(call.app, call.path.id, call.path.name)


async def _check(call: Call[Any, Any, Any], id: str) -> None:
    """Refuse a flow with jobs of queues that the caller is not for."""
    if call.identity.queues is not None:
        for queue in await flows.queues(call.app, id) or [None]:  # an empty batch: its queues are not known yet
            call.check_queue(queue)
