"""`/api/v1/schedules`: jobs that come by cron or at intervals."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import fields

from accoda import schedules
from accoda.admin.creating import check_not_of_demand
from accoda.admin.moments import shown
from accoda.admin.plain import plain
from accoda.envelope import NAME_LENGTH, Event
from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.http.call import Answer, Call
from accoda.http.operation import Nothing
from accoda.http.resources.common import NAME_PATTERN, TEXT_PATTERN, Items, Moment, OwnQueueName
from accoda.limits import COST
from accoda.model import Enqueued
from accoda.schedules.lengths import LONGEST
from accoda.schedules.model import CATCH_UP_LIMIT, CatchUp, Level, Overlap, Source, State, read_schedule
from accoda.schedules.record import plain as as_stored
from accoda.schedules.secrets import shown as hidden

Name = Annotated[str, Meta(pattern=NAME_PATTERN, description="the schedule's name")]
Cron = Annotated[
    str,
    Meta(
        description="five fields, or six with the seconds first: `0 7 * * MON-FRI`",
        extra_json_schema={"format": "cron"},
    ),
]
Zone = Annotated[
    str,
    Meta(
        description="a time zone of the IANA database: `Europe/Rome`",
        extra_json_schema={"format": "time-zone"},
    ),
]
Url = Annotated[str, Meta(extra_json_schema={"format": "webhook-url"})]
Text = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH, pattern=TEXT_PATTERN)]
Every = Annotated[float, Meta(ge=0.1, le=LONGEST, description="seconds between two ticks")]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST, description="seconds")]
Ends = Annotated[tuple[Event, ...], Meta(min_length=1, max_length=2)]
Retries = Annotated[int, Meta(ge=0, le=1_000_000)]
CatchUpLimit = Annotated[int, Meta(ge=1, le=CATCH_UP_LIMIT)]
Tokens = Annotated[int, Meta(ge=0, le=COST)]


class ScheduleSpec(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """When jobs of a queue are made, and what they are: `cron` or `every`.

    `catchUp` says what becomes of ticks that were missed, `overlap` what of a tick whose last job has not ended.
    """

    queue: OwnQueueName
    cron: Cron | UnsetType = UNSET
    tz: Zone | UnsetType = UNSET
    every: Every | UnsetType = UNSET
    payload: Any = None
    priority: Level | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    catch_up_limit: CatchUpLimit | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    grace: Seconds | UnsetType = UNSET
    starts_at: Moment | UnsetType = UNSET
    ends_at: Moment | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    job_name: Text | UnsetType = UNSET
    max_retries: Retries | UnsetType = UNSET
    webhook_url: Url | UnsetType = UNSET
    webhook_on: Ends | UnsetType = UNSET
    cost: Tokens | UnsetType = UNSET
    keep_for: Seconds | UnsetType = UNSET


class NewSchedule(ScheduleSpec, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A schedule with its name."""

    name: Name


class ScheduleChange(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What shall be otherwise. null: as if it had never been said. `cron` takes the place of `every`, and back."""

    queue: OwnQueueName | UnsetType = UNSET
    cron: Cron | UnsetType = UNSET
    tz: Zone | UnsetType = UNSET
    every: Every | UnsetType = UNSET
    payload: Any | UnsetType = UNSET
    priority: Level | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    catch_up_limit: CatchUpLimit | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    grace: Seconds | UnsetType | None = UNSET
    starts_at: Moment | UnsetType | None = UNSET
    ends_at: Moment | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    job_name: Text | UnsetType | None = UNSET
    max_retries: Retries | UnsetType | None = UNSET
    webhook_url: Url | UnsetType | None = UNSET
    webhook_on: Ends | UnsetType = UNSET
    cost: Tokens | UnsetType | None = UNSET
    keep_for: Seconds | UnsetType | None = UNSET


class SchedulePath(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule by its name."""

    name: Name


class ScheduleView(Struct, rename="camel", frozen=True, kw_only=True):
    """A schedule as it is stored, in words, and with its next ticks. Secret fields of its payload are hidden.

    One that has ended is shown for a week; of a broken one `problem` says why. `late`: its tick is past, and nobody
    has come to it.
    """

    name: str
    state: State
    words: str
    queue: str | None = None
    cron: str | None = None
    tz: str | None = None
    every: float | None = None
    payload: Any = None
    priority: Level | None = None
    catch_up: CatchUp | None = None
    catch_up_limit: int | None = None
    overlap: Overlap | None = None
    grace: float | None = None
    starts_at: str | None = None
    ends_at: str | None = None
    enabled: bool = True
    job_name: str | None = None
    max_retries: int | None = None
    webhook_url: str | None = None
    webhook_on: list[Event] | None = None
    cost: int | None = None
    keep_for: float | None = None
    source: Source | None = None
    next_at: str | None = None
    last_at: str | None = None
    upcoming: list[str] = []
    late: bool = False
    problem: str | None = None


UPCOMING = 5
_PLAIN = (
    "queue", "cron", "tz", "every", "priority", "catch_up", "catch_up_limit", "overlap", "grace", "enabled", "job_name",
    "max_retries", "webhook_url", "cost", "keep_for", "source",
)  # fmt: skip


async def create_schedule(call: Call[NewSchedule, Nothing, Nothing]) -> Answer:
    wanted = read_schedule(_said(call.body))
    check_not_of_demand(call.app, "queue", wanted.queue)
    made = await schedules.create(call.app.storage, wanted, app=call.app)
    return Answer(_view(call, made), None, (("location", f"/api/v1/schedules/{made.name}"),))


async def list_schedules(call: Call[None, Nothing, Nothing]) -> Items[ScheduleView]:
    return Items([_view(call, each) for each in await schedules.list_all(call.app.storage)])


async def get_schedule(call: Call[None, Nothing, SchedulePath]) -> ScheduleView:
    return _view(call, await schedules.get(call.app.storage, call.path.name))


async def put_schedule(call: Call[ScheduleSpec, Nothing, SchedulePath]) -> ScheduleView:
    wanted = read_schedule(_said(call.body) | {"name": call.path.name})
    check_not_of_demand(call.app, "queue", wanted.queue)
    return _view(call, await schedules.put(call.app.storage, wanted, app=call.app))


async def change_schedule(call: Call[ScheduleChange, Nothing, SchedulePath]) -> ScheduleView:
    store = call.app.storage
    found = await schedules.get(store, call.path.name, secrets=True)
    if found.schedule is None:
        raise Conflict(f"schedule {found.name!r} cannot be read; put it anew, or delete it")
    asked = _said(call.body)
    if "cron" in asked and "every" in asked:
        raise InvalidInput("every", "give either cron or every, not both")
    told = as_stored(found.schedule) | asked
    for name, other in (("cron", "every"), ("every", "cron")):
        if name in asked:
            told.pop(other, None)
    wanted = read_schedule({name: value for name, value in told.items() if value is not None})
    check_not_of_demand(call.app, "queue", wanted.queue)
    return _view(call, await schedules.put(store, wanted, app=call.app))


async def delete_schedule(call: Call[None, Nothing, SchedulePath]) -> None:
    if not await schedules.delete(call.app.storage, call.path.name):
        raise NotFound("schedule", call.path.name)


async def trigger_schedule(call: Call[None, Nothing, SchedulePath]) -> Answer:
    made: Enqueued = await schedules.trigger(call.app.storage, call.app.new_job, call.path.name)
    return Answer(made, None, (("location", f"/api/v1/jobs/{made.id}"),))


async def pause_schedule(call: Call[None, Nothing, SchedulePath]) -> ScheduleView:
    return _view(call, await schedules.pause(call.app.storage, call.path.name))


async def resume_schedule(call: Call[None, Nothing, SchedulePath]) -> ScheduleView:
    return _view(call, await schedules.resume(call.app.storage, call.path.name))


def _said(body: Struct) -> dict[str, Any]:
    """What was said, under the wire's names."""
    every = ((field.encode_name, getattr(body, field.name)) for field in fields(body))
    return {name: value for name, value in every if value is not UNSET}


def _view(call: Call[Any, Any, Any], found: schedules.ScheduleView) -> ScheduleView:
    common: dict[str, Any] = {
        "name": found.name,
        "state": found.state,
        "words": found.words,
        "next_at": shown(found.next_at),
        "last_at": shown(found.last_at),
        "upcoming": [shown(tick) for tick in found.upcoming(UPCOMING)],
        "late": found.late,
        "problem": found.problem,
    }
    schedule = found.schedule
    if schedule is None:
        return ScheduleView(**common)
    handler = call.app.handlers.get(schedule.queue)
    secret = (*found.secret, *(() if handler is None else handler.options.secret))
    return ScheduleView(
        **common,
        **{name: getattr(schedule, name) for name in _PLAIN},
        payload=hidden(plain(hidden(schedule.payload, secret)), secret),  # before and after: see admin.secrets
        starts_at=_moment(schedule.starts_at),
        ends_at=_moment(schedule.ends_at),
        webhook_on=list(schedule.webhook_on) if schedule.webhook_url else None,
    )


def _moment(at: datetime | None) -> str | None:
    return None if at is None else shown(round(at.timestamp() * 1000))
