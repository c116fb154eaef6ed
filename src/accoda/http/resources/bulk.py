"""`/api/v1/jobs/bulk`: one action on all jobs that fit a filter, which goes on by itself."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.admin import bulk
from accoda.admin.bulk import Action, BulkView, JobFilter
from accoda.admin.bulk import Count as Matching
from accoda.http.call import Answer, Call
from accoda.http.operation import Header, Link, Nothing, Operation, Reply
from accoda.http.resources.common import OWN_PATTERN, TEXT_PATTERN, Items
from accoda.search.filter import FIELD
from accoda.shown.levels import Level

GROUP = "Bulk"


class BulkRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What to do with which jobs. `level` is for `priority` alone. `dryRun`: only count them."""

    action: Action
    filter: JobFilter
    level: Level | UnsetType = UNSET
    dry_run: bool = False


class BulkPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A bulk change by its id."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{16}$", description="the bulk change's id")]


async def start_bulk(call: Call[BulkRequest, Nothing, Nothing]) -> Answer:
    asked = call.body
    level = None if asked.level is UNSET else asked.level
    bulk.check(asked.action, asked.filter, level)
    if asked.dry_run:
        return Answer(await bulk.count(call.app, asked.filter, asked.action), 200)
    view = await bulk.start(call.app, asked.action, asked.filter, level, call.who.name)
    return Answer(view, 202, (("location", f"/api/v1/jobs/bulk/{view.id}"),))


async def list_bulk(call: Call[None, Nothing, Nothing]) -> Items[BulkView]:
    return Items(await bulk.list(call.app))


async def get_bulk(call: Call[None, Nothing, BulkPath]) -> BulkView:
    return await bulk.get(call.app, call.path.id)


async def stop_bulk(call: Call[None, Nothing, BulkPath]) -> BulkView:
    return await bulk.stop(call.app, call.path.id)


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
_SAID = ("queue", "state", "priority", "key", "error", "fingerprint", "field", "name")


def _only(action: str, *states: str) -> dict[str, object]:
    """Where it is this action, the filter names one of these states, or none."""
    return {
        "anyOf": [
            {"properties": {"action": {"not": {"const": action}}}},
            {"properties": {"filter": {"properties": {"state": {"enum": [*states, None]}}}}},
        ]
    }


RULES: dict[str, object] = {
    "allOf": [
        {
            "properties": {
                "filter": {
                    "properties": {
                        "queue": {"type": ["string", "null"], "pattern": OWN_PATTERN},
                        "key": _TEXT,
                        "error": _TEXT,
                        "name": _TEXT,
                        "field": {
                            "type": ["string", "null"],
                            "pattern": FIELD,
                        },
                        "system": {"const": False},
                    },
                    "anyOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in _SAID],
                }
            }
        },
        {
            "anyOf": [
                {"title": "priority", "required": ["level"], "properties": {"action": {"const": "priority"}}},
                {
                    "title": "others",
                    "properties": {"action": {"enum": ["retry", "cancel", "delete"]}, "level": False},
                },
            ]
        },
        _only("retry", "delayed", "dead"),
        _only("cancel", "ready", "delayed", "taken"),
        _only("priority", "ready", "delayed"),
    ]
}

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/v1/jobs/bulk",
        handler=start_bulk,
        group=GROUP,
        scope="admin",
        summary="Change all jobs that fit",
        description="`retry` makes dead jobs ready again and starts delayed ones now; `cancel` takes back what waits "
        "or runs; `delete` deletes in whatever state; `priority` gives those that wait another `level`. Jobs that come "
        "in later are spared. It goes on by itself, through restarts: 202, and its state is at `Location`. With "
        "`dryRun` nothing is changed: 200, with the number of jobs that fit.",
        request=BulkRequest,
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
    ),
    Operation(
        method="GET",
        path="/api/v1/jobs/bulk",
        handler=list_bulk,
        group=GROUP,
        summary="List bulk changes",
        description="Those that go on, and those that have ended in the last week; the latest first.",
        replies={200: Reply(description="The bulk changes.", type=Items[BulkView], example=Items([VIEW]))},
    ),
    Operation(
        method="GET",
        path="/api/v1/jobs/bulk/{id}",
        handler=get_bulk,
        group=GROUP,
        summary="How far a bulk change is",
        path_type=BulkPath,
        path_example=ONE,
        replies={200: Reply(description="The bulk change.", type=BulkView, example=VIEW)},
        errors=("not-found",),
    ),
    Operation(
        method="POST",
        path="/api/v1/jobs/bulk/{id}/stop",
        handler=stop_bulk,
        group=GROUP,
        scope="admin",
        summary="Stop a bulk change",
        description="What is done stays done; the step that runs now may still do its share.",
        path_type=BulkPath,
        path_example=ONE,
        replies={200: Reply(description="The bulk change as it ended.", type=BulkView, example=STOPPED)},
        errors=("not-found", "conflict"),
    ),
)
