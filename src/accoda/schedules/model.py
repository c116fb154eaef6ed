"""A schedule, checked when it is made. Pure.

Errors use the field names of the wire (`catchUp`), as in HTTP and TOML.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NoReturn, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from accoda.envelope import Event, Hook, JobMetadata, check_metadata, check_type
from accoda.errors import InvalidInput
from accoda.limits import COST
from accoda.model import check_lane, check_name
from accoda.names import SYSTEM, is_system
from accoda.payload import encode
from accoda.priority import Priority
from accoda.schedules.cron import read_cron, zone_of
from accoda.schedules.ticks import NEVER, Bounded, Calendar, Interval, Ticks, following
from accoda.schedules.words import cron_in_words, length_in_words, seconds_of
from accoda.times import milliseconds

QUEUE = "accoda.schedules"
"""The system queue whose jobs are the schedules."""
CATCH_UP_LIMIT = 1000
"""How many jobs a schedule may make at once."""
LEAST_EVERY = 0.1

Level = Literal["CRITICAL", "HIGH", "NORMAL", "LOW"]
CatchUp = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip", "replace"]
Source = Literal["code", "file", "api"]
State = Literal["active", "paused", "ended", "broken"]


class Schedule(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """When jobs of a queue are made, and what they carry. Exactly one of `cron` and `every` is given.

    `every` and `grace` are seconds, or texts such as "1h30m". A datetime needs a time zone.

    >>> Schedule(name="report", queue="reports", every="1h30m").every
    5400.0
    >>> Schedule(name="report", queue="reports", cron="61 * * * *")
    Traceback (most recent call last):
        ...
    accoda.errors.InvalidInput: cron: '61 * * * *': bad minute; write five fields ...
    """

    name: str
    queue: str
    cron: str | None = None
    tz: str = "UTC"
    every: float | str | None = None
    payload: Any = None
    priority: Level = "NORMAL"
    catch_up: CatchUp = "once"
    catch_up_limit: int = 100
    overlap: Overlap = "allow"
    grace: float | str | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    enabled: bool = True
    job_name: str | None = None
    max_retries: int | None = None
    webhook_url: str | None = None
    webhook_on: tuple[Event, ...] = ("done", "dead")
    cost: int | None = None
    keep_for: float | str | None = None
    type: str | None = None
    lane: str | None = None
    source: Source = "api"

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_name("queue", self.queue)
        if is_system(self.queue):
            _refuse("queue", f"names that begin with {SYSTEM!r} are Accoda's own; choose another", self.queue)
        _check_times(self)
        _check_words(self)
        _check_job(self)

    def ticks(self, anchor: int) -> Ticks:
        """Its ticks. An interval without `starts_at` starts at `anchor`, the moment at which it was stored."""
        first = 0 if self.starts_at is None else milliseconds("startsAt", self.starts_at)
        end = NEVER - 1 if self.ends_at is None else milliseconds("endsAt", self.ends_at)
        if self.cron is not None:
            return Bounded(Calendar(read_cron(self.cron, self.tz)), first, end)
        assert isinstance(self.every, float)
        return Bounded(Interval(first or anchor, round(self.every * 1000)), first, end)

    @property
    def extras(self) -> JobMetadata:
        """What its jobs carry beside their payload, except for the tick."""
        hook = None if self.webhook_url is None else Hook(self.webhook_url, self.webhook_on)
        most = None if self.max_retries is None else self.max_retries + 1
        return JobMetadata(type=self.type, name=self.job_name, max_attempts=most, hook=hook, schedule=self.name)


class ScheduleView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A stored schedule as people see it. Moments are milliseconds, by the storage's clock.

    `state`: an "ended" one is shown for a week after its end; a "broken" one cannot be read or used, and `problem` says
    why. `next_at` is None if no tick will come. `last_at` is the last tick that got a job; `late` means that the next
    tick is overdue. `secret` names the fields of the payload that are hidden in it.
    """

    schedule: Schedule | None
    name: str
    state: State
    words: str
    at: int
    next_at: int | None = None
    last_at: int | None = None
    late: bool = False
    problem: str | None = None
    id: int | None = None
    anchor: int = 0
    secret: tuple[str, ...] = ()

    def upcoming(self, count: int) -> list[int]:
        """Its next ticks, beginning with `next_at`."""
        if self.schedule is None or self.next_at is None:
            return []
        return list(following(self.schedule.ticks(self.anchor), self.next_at - 1, count))


def in_words(schedule: Schedule) -> str:
    """When it ticks, in words.

    >>> in_words(Schedule(name="a", queue="a", every="5m"))
    'every 5 minutes'
    >>> in_words(Schedule(name="a", queue="a", cron="0 7 * * MON-FRI", tz="Europe/Rome"))
    'at 07:00, Monday to Friday, Europe/Rome'
    """
    if schedule.every is not None:
        return f"every {length_in_words(float(schedule.every))}"
    return f"{cron_in_words(schedule.cron or '')}, {schedule.tz}"


def upcoming(schedule: Schedule, count: int, now: int) -> list[int]:
    """Its next ticks after a moment (milliseconds). An interval without `starts_at` starts at that moment."""
    return list(following(schedule.ticks(now), now, count))


def names_on_the_wire() -> dict[str, str]:
    """The fields of a schedule: from their Python names to the wire's."""
    return {field.name: field.encode_name for field in msgspec.structs.fields(Schedule)}


def read_schedule(given: Mapping[str, Any]) -> Schedule:
    """A schedule from plain values under their wire names; `InvalidInput` names a wrong field."""
    for _, field, words in _WORDS:
        if field in given and given[field] not in words:
            _refuse(field, f"must be one of {', '.join(words)}", given[field])
    try:
        return msgspec.convert(dict(given), Schedule)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidInput):
            raise error.__cause__ from None
        text, _, path = str(error).partition(" - at `$")
        field = path.strip("`.").split("[")[0] or _named(text)
        raise InvalidInput(field or "schedule", text[:1].lower() + text[1:]) from error


def _named(text: str) -> str:
    """The field in messages such as "Object missing required field `queue`"."""
    return text.split("`")[1] if text.count("`") >= 2 else ""


def _check_times(schedule: Schedule) -> None:
    if (schedule.cron is None) == (schedule.every is None):
        field = "cron" if schedule.cron is None else "every"
        raise InvalidInput(field, 'give one of the two: cron, such as "0 7 * * MON-FRI", or every, such as "5m"')
    zone_of(schedule.tz)
    if schedule.cron is not None:
        if type(schedule.cron) is not str:
            _refuse("cron", 'must be text such as "0 7 * * MON-FRI"', schedule.cron)
        read_cron(schedule.cron, schedule.tz)
    for name, field in (("every", "every"), ("grace", "grace"), ("keep_for", "keepFor")):
        if (given := getattr(schedule, name)) is not None:
            force_setattr(schedule, name, float(seconds_of(field, given)))
    if schedule.every is not None and float(schedule.every) < LEAST_EVERY:
        _refuse("every", f"must be at least {LEAST_EVERY:g} seconds", schedule.every)
    for name, field in (("starts_at", "startsAt"), ("ends_at", "endsAt")):
        if (moment := getattr(schedule, name)) is not None:
            if not isinstance(moment, datetime):
                _refuse(field, 'must be a datetime with a time zone, such as "2030-01-31T09:00:00Z"', moment)
            if milliseconds(field, moment) >= NEVER:
                _refuse(field, "must be before the end of the year 9999", moment.isoformat())
    if schedule.starts_at is not None and schedule.ends_at is not None:
        _check_window(schedule, milliseconds("startsAt", schedule.starts_at))


def _check_window(schedule: Schedule, start: int) -> None:
    if schedule.ticks(start).after(start - 1) is None:
        _refuse("endsAt", "must leave time for at least one tick after startsAt", str(schedule.ends_at))


def _check_words(schedule: Schedule) -> None:
    for name, field, words in _WORDS:
        if getattr(schedule, name) not in words:
            _refuse(field, f"must be one of {', '.join(words)}", getattr(schedule, name))
    if type(schedule.enabled) is not bool:
        _refuse("enabled", "must be true or false", schedule.enabled)
    _check_number(schedule.catch_up_limit, "catchUpLimit", 1, CATCH_UP_LIMIT)


def _check_job(schedule: Schedule) -> None:
    encode(schedule.payload)  # refuses a payload that no job can carry
    if schedule.max_retries is not None:
        _check_number(schedule.max_retries, "maxRetries", 0, COST)
    if schedule.cost is not None:
        _check_number(schedule.cost, "cost", 0, COST)
    if schedule.type is not None:
        check_type(schedule.type)
    if schedule.lane is not None:
        check_lane(schedule.lane)
    try:
        check_metadata(JobMetadata(name=schedule.job_name))
    except InvalidInput as error:
        raise InvalidInput("jobName", str(error).removeprefix(f"{error.field}: ")) from None
    on = schedule.webhook_on
    if not isinstance(on, (tuple, list)) or not on or not set(on) <= set(get_args(Event)):
        _refuse("webhookOn", 'must be ["done"], ["dead"] or both', on)
    force_setattr(schedule, "webhook_on", tuple(on))
    if schedule.webhook_url is not None:
        from accoda.webhooks.urls import read_url  # not at the top: most schedules have no webhook

        read_url(schedule.webhook_url)


def _check_number(value: object, field: str, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        _refuse(field, f"must be a whole number from {least} to {most}", value)


def _refuse(field: str, rule: str, value: object) -> NoReturn:
    raise InvalidInput(field, f"{rule}, not {value!r:.80}")


_WORDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("priority", "priority", tuple(level.name for level in Priority)),
    ("catch_up", "catchUp", get_args(CatchUp)),
    ("overlap", "overlap", get_args(Overlap)),
    ("source", "source", get_args(Source)),
)
