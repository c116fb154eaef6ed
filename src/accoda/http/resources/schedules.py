"""`/api/v1/schedules`: jobs that come by cron or at intervals."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Generic, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import fields

from accoda import schedules
from accoda.envelope import NAME_LENGTH, Event
from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.http.call import Answer, Call
from accoda.http.operation import Header, Link, Nothing, Reply, operation
from accoda.http.resources.common import (
    GONE,
    NAME_PATTERN,
    TEXT_PATTERN,
    WEBHOOK_URL,
    Items,
    Moment,
    OwnQueueName,
    present,
)
from accoda.limits import COST
from accoda.model import Enqueued
from accoda.operations.lanes import LaneName
from accoda.operations.schedules import ScheduleView
from accoda.schedules.model import CATCH_UP_LIMIT, CatchUp, Level, Overlap, read_schedule
from accoda.schedules.record import plain as as_stored
from accoda.schedules.words import LONGEST

N = TypeVar("N")

Name = Annotated[str, Meta(pattern=NAME_PATTERN, description="the schedule's name")]

Cron = Annotated[
    str,
    Meta(
        description="five fields, or six with the seconds first: `0 7 * * MON-FRI`",
        extra_json_schema={"format": "cron", "minLength": 1, "maxLength": 200, "pattern": "^\\s*[^\\s]"},
    ),
]

Zone = Annotated[
    str,
    Meta(
        description="a time zone of the IANA database: `Europe/Rome`",
        extra_json_schema={"format": "time-zone", "minLength": 1, "maxLength": 64},
    ),
]

Url = Annotated[str, Meta(extra_json_schema=WEBHOOK_URL)]

Text = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH, pattern=TEXT_PATTERN)]

Every = Annotated[float, Meta(ge=0.1, le=LONGEST, description="seconds between two ticks")]

Seconds = Annotated[float, Meta(ge=0, le=LONGEST, description="seconds")]

Ends = Annotated[tuple[Event, ...], Meta(min_length=1, max_length=2)]

Retries = Annotated[int, Meta(ge=0, le=1_000_000)]

CatchUpLimit = Annotated[int, Meta(ge=1, le=CATCH_UP_LIMIT)]

Tokens = Annotated[int, Meta(ge=0, le=COST)]


class Said(Struct, Generic[N], rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What may be said of a schedule beside its queue. `N` is what else an option may be: null, where it can be taken
    back, or nothing."""

    cron: Cron | UnsetType = UNSET
    tz: Zone | UnsetType = UNSET
    every: Every | UnsetType = UNSET
    payload: Any | UnsetType = UNSET
    priority: Level | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    catch_up_limit: CatchUpLimit | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    grace: Seconds | UnsetType | N = UNSET
    starts_at: Moment | UnsetType | N = UNSET
    ends_at: Moment | UnsetType | N = UNSET
    enabled: bool | UnsetType = UNSET
    job_name: Text | UnsetType | N = UNSET
    max_retries: Retries | UnsetType | N = UNSET
    webhook_url: Url | UnsetType | N = UNSET
    webhook_on: Ends | UnsetType = UNSET
    cost: Tokens | UnsetType | N = UNSET
    keep_for: Seconds | UnsetType | N = UNSET
    type: Text | UnsetType | N = UNSET
    lane: LaneName | UnsetType | N = UNSET


class ScheduleSpec(Said[UnsetType], rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """When jobs of a queue are made, and what they are: `cron` or `every`.

    `catchUp` says what becomes of ticks that were missed, `overlap` what of a tick whose last job has not ended.
    """

    queue: OwnQueueName


class NewSchedule(ScheduleSpec, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A schedule with its name."""

    name: Name


class ScheduleChange(Said[None], rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What shall be otherwise. null: as if it had never been said. `cron` takes the place of `every`, and back."""

    queue: OwnQueueName | UnsetType = UNSET


class SchedulePath(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule by its name."""

    name: Name


GROUP = "Schedules"

REPORT = {"queue": "reports", "cron": "0 7 * * MON-FRI", "tz": "Europe/Rome", "payload": {"kind": "daily"}}

VIEW = ScheduleView(
    name="daily-report",
    state="active",
    words="at 07:00, Monday to Friday, Europe/Rome",
    queue="reports",
    cron="0 7 * * MON-FRI",
    tz="Europe/Rome",
    payload={"kind": "daily"},
    priority="NORMAL",
    catch_up="once",
    catch_up_limit=100,
    overlap="allow",
    source="api",
    next_at="2030-01-01T06:00:00.000Z",
    upcoming=["2030-01-01T06:00:00.000Z", "2030-01-02T06:00:00.000Z"],
)

ONE = {"name": "daily-report"}

_BOTH = present("cron", "every")
RULES: dict[str, Any] = {"not": {"anyOf": [_BOTH, {"not": {"anyOf": [present("cron"), present("every")]}}]}}
"""Either of the two."""

AFTER = tuple(
    Link(name, {"name": "$response.body#/name"})
    for name in (
        "getSchedule",
        "changeSchedule",
        "triggerSchedule",
        "pauseSchedule",
        "resumeSchedule",
        "deleteSchedule",
    )
)


@operation(
    "POST",
    "/api/v1/schedules",
    GROUP,
    "Create a schedule",
    scope="admin",
    queues="own",
    description="However many services and workers run, each tick gets exactly one job, also through crashes.",
    rules=RULES,
    example={"name": "daily-report", **REPORT},
    replies={
        201: Reply(
            description="It is stored.",
            type=ScheduleView,
            example=VIEW,
            headers=(Header(name="Location", description="The path of the schedule."),),
            links=AFTER,
        )
    },
    errors=("conflict",),
)
async def create_schedule(call: Call[NewSchedule, Nothing, Nothing]) -> Answer:
    call.check_queue(call.body.queue)
    wanted = read_schedule(_said(call.body))
    made = await schedules.create(call.app.storage, wanted, app=call.app)
    return Answer(_view(call, made), None, (("location", f"/api/v1/schedules/{made.name}"),))


@operation(
    "GET",
    "/api/v1/schedules",
    GROUP,
    "List schedules",
    queues="own",
    description="By name, each in words and with its next ticks.",
    replies={200: Reply(description="The schedules.", type=Items[ScheduleView], example=Items([VIEW]))},
)
async def list_schedules(call: Call[None, Nothing, Nothing]) -> Items[ScheduleView]:
    every = [_view(call, each) for each in await schedules.list_all(call.app.storage)]
    return Items([each for each in every if call.identity.has(each.queue)])


@operation(
    "GET",
    "/api/v1/schedules/{name}",
    GROUP,
    "One schedule",
    queues="own",
    path_example=ONE,
    replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW)},
    errors=("not-found",),
)
async def get_schedule(call: Call[None, Nothing, SchedulePath]) -> ScheduleView:
    found = _view(call, await schedules.get(call.app.storage, call.path.name))
    call.check_queue(found.queue)
    return found


@operation(
    "PUT",
    "/api/v1/schedules/{name}",
    GROUP,
    "Create a schedule, or put another in its place",
    scope="admin",
    queues="own",
    description="What is not said is as if it had never been said.",
    path_example=ONE,
    rules=RULES,
    example=REPORT,
    replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW, links=AFTER)},
    errors=("conflict",),
)
async def put_schedule(call: Call[ScheduleSpec, Nothing, SchedulePath]) -> ScheduleView:
    call.check_queue(call.body.queue)
    with suppress(NotFound):
        await _check(call)
    wanted = read_schedule(_said(call.body) | {"name": call.path.name})
    return _view(call, await schedules.put(call.app.storage, wanted, app=call.app))


@operation(
    "PATCH",
    "/api/v1/schedules/{name}",
    GROUP,
    "Change a schedule",
    scope="admin",
    queues="own",
    description="What is not said stays as it is. null takes back what was said.",
    path_example=ONE,
    rules={"not": _BOTH},
    example={"cron": "30 6 * * *"},
    replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW)},
    errors=("not-found", "conflict"),
)
async def change_schedule(call: Call[ScheduleChange, Nothing, SchedulePath]) -> ScheduleView:
    store = call.app.storage
    found = await schedules.get(store, call.path.name, secrets=True)
    if found.schedule is None:
        raise Conflict(f"schedule {found.name!r} cannot be read; put it anew, or delete it")
    asked = _said(call.body)
    for queue in (found.schedule.queue, asked.get("queue")):
        if queue is not None:
            call.check_queue(queue)
    if "cron" in asked and "every" in asked:
        raise InvalidInput("every", "give either cron or every, not both")
    told = as_stored(found.schedule) | asked
    for name, other in (("cron", "every"), ("every", "cron")):
        if name in asked:
            told.pop(other, None)
    wanted = read_schedule({name: value for name, value in told.items() if value is not None})
    return _view(call, await schedules.put(store, wanted, app=call.app))


@operation(
    "DELETE",
    "/api/v1/schedules/{name}",
    GROUP,
    "Delete a schedule",
    scope="admin",
    queues="own",
    description="Jobs that it has made stay. One that is declared in code comes back with the next worker that starts.",
    path_example=ONE,
    replies={204: GONE},
    errors=("not-found",),
)
async def delete_schedule(call: Call[None, Nothing, SchedulePath]) -> None:
    await _check(call)
    if not await schedules.delete(call.app.storage, call.path.name):
        raise NotFound("schedule", call.path.name)


@operation(
    "POST",
    "/api/v1/schedules/{name}/trigger",
    GROUP,
    "Make a schedule's job now",
    scope="admin",
    queues="own",
    description="Nothing else changes. Its overlap policy holds: where its last job has not ended, that is kept or "
    "replaced as the policy says, and the answer is 200 with its id.",
    path_example=ONE,
    replies={
        201: Reply(
            description="The job.",
            type=Enqueued,
            example=Enqueued(43, "created"),
            headers=(Header(name="Location", description="The path of the job."),),
        ),
        200: Reply(
            description="Its last job had not ended; `what` says what became of that.",
            type=Enqueued,
            example=Enqueued(42, "kept"),
            headers=(Header(name="Location", description="The path of the job."),),
        ),
    },
    errors=("not-found", "conflict"),
)
async def trigger_schedule(call: Call[None, Nothing, SchedulePath]) -> Answer:
    await _check(call)
    made = await schedules.trigger(call.app.storage, schedules.maker_of(call.app), call.path.name)
    return Answer(made, 201 if made.what == "created" else 200, (("location", f"/api/v1/jobs/{made.id}"),))


@operation(
    "POST",
    "/api/v1/schedules/{name}/pause",
    GROUP,
    "Pause a schedule",
    scope="admin",
    queues="own",
    path_example=ONE,
    replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW)},
    errors=("not-found", "conflict"),
)
async def pause_schedule(call: Call[None, Nothing, SchedulePath]) -> ScheduleView:
    await _check(call)
    return _view(call, await schedules.pause(call.app.storage, call.path.name))


@operation(
    "POST",
    "/api/v1/schedules/{name}/resume",
    GROUP,
    "Resume a schedule",
    scope="admin",
    queues="own",
    description="With its first tick from now: ticks missed in between are skipped.",
    path_example=ONE,
    replies={200: Reply(description="The schedule.", type=ScheduleView, example=VIEW)},
    errors=("not-found", "conflict"),
)
async def resume_schedule(call: Call[None, Nothing, SchedulePath]) -> ScheduleView:
    await _check(call)
    return _view(call, await schedules.resume(call.app.storage, call.path.name))


async def _check(call: Call[Any, Nothing, SchedulePath]) -> None:
    """Refuse a schedule of a queue that the caller is not for, and one that cannot be read: its queue is not known.

    Between this look and the change that follows, the schedule may be put anew for another queue. Then the change is
    made to that one: only by a caller that had the right to it a moment before.
    """
    if call.identity.queues is not None:
        found = (await schedules.get(call.app.storage, call.path.name)).schedule
        call.check_queue(None if found is None else found.queue)


def _said(body: Struct) -> dict[str, Any]:
    """What was said, under the wire's names."""
    every = ((field.encode_name, getattr(body, field.name)) for field in fields(body))
    return {name: value for name, value in every if value is not UNSET}


def _view(call: Call[Any, Any, Any], found: schedules.ScheduleView) -> ScheduleView:
    return ScheduleView.of(call.app, found)
