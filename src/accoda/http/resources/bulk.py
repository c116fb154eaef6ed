"""`/api/v1/jobs/bulk`: one action on all jobs that match a filter, in the background."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.http.call import Answer, Call
from accoda.http.operation import Header, Link, Nothing, Reply, operation
from accoda.http.resources.common import OWN_PATTERN, TEXT_PATTERN, Items, present
from accoda.model import STATES
from accoda.operations import bulk
from accoda.operations.bulk import Action, BulkView
from accoda.operations.bulk import Count as Matching
from accoda.operations.job_filter import FIELD, JobFilter
from accoda.operations.levels import Level

GROUP = "Bulk"


class BulkRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What to do with which jobs. `level` is for `priority` alone. `dryRun`: only count them."""

    action: Action
    filter: JobFilter
    level: Level | UnsetType = UNSET
    rate: Annotated[float, Meta(ge=0.001, le=10_000, description="jobs a second")] | UnsetType = UNSET
    dry_run: bool = False


class BulkPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A bulk change by its id."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{16}$", description="the bulk change's id")]


ONE = {"id": "9f86d081884c7d65"}

VIEW = BulkView(
    id=ONE["id"],
    action="retry",
    filter=JobFilter(queue="emails", state="dead", error="TimeoutError"),
    who="anna",
    state="running",
    looked_at=2000,
    matched=730,
    changed=500,
    started_at="2030-01-01T10:00:00.000Z",
)

STOPPED = BulkView(
    id=ONE["id"],
    action="retry",
    filter=JobFilter(queue="emails"),
    state="stopped",
    started_at="2030-01-01T10:00:00.000Z",
    ended_at="2030-01-01T10:00:02.000Z",
)

_TEXT = {"type": ["string", "null"], "pattern": TEXT_PATTERN}

_SAID = ("queue", "type", "lane", "state", "priority", "key", "error", "fingerprint", "field", "name")


def _wrong_state(action: Action) -> dict[str, object]:
    """A filter with a state in which the action can change nothing."""
    wrong = [state for state in STATES if state not in bulk.ACTION_STATES[action]]
    filter = {"required": ["state"], "properties": {"state": {"enum": wrong}}}
    return {"properties": {"action": {"const": action}, "filter": filter}}


RULES: dict[str, object] = {
    "properties": {
        "filter": {
            "properties": {
                "queue": {"type": ["string", "null"], "pattern": OWN_PATTERN},
                "key": _TEXT,
                "error": _TEXT,
                "name": _TEXT,
                "field": {"type": ["string", "null"], "pattern": FIELD},
                "system": {"const": False},
            },
            "anyOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in _SAID],
        }
    },
    "not": {
        "anyOf": [
            {"properties": {"action": {"const": "priority"}}, "not": present("level")},
            {"properties": {"action": {"not": {"const": "priority"}}, "level": {}}, "required": ["level"]},
            *(_wrong_state(action) for action in ("retry", "cancel", "priority")),
        ]
    },
}


@operation(
    "POST",
    "/api/v1/jobs/bulk",
    GROUP,
    "Change all matching jobs",
    scope="admin",
    queues="own",
    description="`retry` makes dead jobs ready again and starts delayed ones now; `cancel` takes back what waits "
    "or runs; `delete` deletes in whatever state; `priority` gives those that wait another `level`. Jobs that come "
    "in later are spared. It runs in the background, through restarts: 202, and its state is at `Location`. With "
    "`dryRun` nothing is changed: 200, with the number of matching jobs.",
    rules=RULES,
    example={"action": "retry", "filter": {"queue": "emails", "state": "dead", "error": "TimeoutError"}},
    replies={
        202: Reply(
            description="It has begun.",
            type=BulkView,
            example=VIEW,
            headers=(Header(name="Location", description="The path of the bulk change."),),
            links=tuple(Link(name, {"id": "$response.body#/id"}) for name in ("getBulk", "stopBulk")),
        ),
        200: Reply(
            description="How many would be changed; not `exact`: at least so many.",
            type=Matching,
            example=Matching(730, True),
        ),
    },
)
async def start_bulk(call: Call[BulkRequest, Nothing, Nothing]) -> Answer:
    asked = call.body
    call.check_queue(asked.filter.queue)
    level = None if asked.level is UNSET else asked.level
    rate = None if asked.rate is UNSET else asked.rate
    bulk.check(asked.action, asked.filter, level, rate)
    if asked.dry_run:
        return Answer(await bulk.count(call.app, asked.filter, asked.action), 200)
    view = await bulk.start(call.app, asked.action, asked.filter, level=level, rate=rate, who=call.identity.name)
    return Answer(view, 202, (("location", f"/api/v1/jobs/bulk/{view.id}"),))


@operation(
    "GET",
    "/api/v1/jobs/bulk",
    GROUP,
    "List bulk changes",
    queues="own",
    description="Those in progress, and those that have ended in the last week; the latest first.",
    replies={200: Reply(description="The bulk changes.", type=Items[BulkView], example=Items([VIEW]))},
)
async def list_bulk(call: Call[None, Nothing, Nothing]) -> Items[BulkView]:
    return Items([each for each in await bulk.list(call.app) if call.identity.has(each.filter.queue)])


@operation(
    "GET",
    "/api/v1/jobs/bulk/{id}",
    GROUP,
    "How far a bulk change is",
    queues="own",
    path_example=ONE,
    replies={200: Reply(description="The bulk change.", type=BulkView, example=VIEW)},
    errors=("not-found",),
)
async def get_bulk(call: Call[None, Nothing, BulkPath]) -> BulkView:
    found = await bulk.get(call.app, call.path.id)
    call.check_queue(found.filter.queue)
    return found


@operation(
    "POST",
    "/api/v1/jobs/bulk/{id}/stop",
    GROUP,
    "Stop a bulk change",
    scope="admin",
    queues="own",
    description="What is done stays done; the step that runs now may still do its share.",
    path_example=ONE,
    replies={200: Reply(description="The bulk change as it ended.", type=BulkView, example=STOPPED)},
    errors=("not-found", "conflict"),
)
async def stop_bulk(call: Call[None, Nothing, BulkPath]) -> BulkView:
    call.check_queue((await bulk.get(call.app, call.path.id)).filter.queue)  # which never changes
    return await bulk.stop(call.app, call.path.id)
