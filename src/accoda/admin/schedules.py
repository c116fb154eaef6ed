"""Schedules, as people see, pause, trigger and delete them, and the jobs that one has made lately."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from accoda import schedules
from accoda.admin.latest import latest
from accoda.admin.moments import shown
from accoda.admin.views import JobView
from accoda.envelope import Event, unwrap
from accoda.errors import NotFound
from accoda.model import STATES, Enqueued, JobInfo
from accoda.schedules.model import CatchUp, Level, Overlap, Source, State
from accoda.schedules.secrets import shown as hidden
from accoda.shown.plain import plain

if TYPE_CHECKING:
    from accoda.app import App

UPCOMING = 5
RECENT = 20
LOOKED_AT = 200
"""Jobs of each state, the newest, that are looked through for those of one schedule."""


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
    webhook_on: builtins.list[Event] | None = None
    cost: int | None = None
    keep_for: float | None = None
    source: Source | None = None
    next_at: str | None = None
    last_at: str | None = None
    upcoming: builtins.list[str] = []
    late: bool = False
    problem: str | None = None

    @classmethod
    def of(cls, app: App, found: schedules.ScheduleView) -> ScheduleView:
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
            return cls(**common)
        handler = app.handlers.get(schedule.queue)
        secret = (*found.secret, *(() if handler is None else handler.options.secret))
        return cls(
            **common,
            **{name: getattr(schedule, name) for name in _PLAIN},
            payload=hidden(plain(hidden(schedule.payload, secret)), secret),  # before and after: see admin.secrets
            starts_at=_moment(schedule.starts_at),
            ends_at=_moment(schedule.ends_at),
            webhook_on=[*schedule.webhook_on] if schedule.webhook_url else None,
        )


_PLAIN = (
    "queue", "cron", "tz", "every", "priority", "catch_up", "catch_up_limit", "overlap", "grace", "enabled", "job_name",
    "max_retries", "webhook_url", "cost", "keep_for", "source",
)  # fmt: skip


async def list(app: App) -> builtins.list[ScheduleView]:
    """Every schedule by name, with those that are broken or have ended."""
    return [ScheduleView.of(app, each) for each in await schedules.list_all(await app.connections.get())]


async def get(app: App, name: str) -> ScheduleView:
    """One schedule."""
    return ScheduleView.of(app, await schedules.get(await app.connections.get(), name))


async def recent(app: App, view: ScheduleView) -> builtins.list[JobView]:
    """Jobs that a schedule has made and that are stored, the newest first, if they are among the queue's newest."""
    if view.queue is None:
        return []
    store = await app.connections.get()
    found: dict[int, JobInfo] = {}
    for state in STATES:
        jobs = await latest(store, view.queue, state, LOOKED_AT)
        found |= {job.id: job for job in jobs if unwrap(job.data)[0].schedule == view.name}
    return [JobView.of(app, found[id]) for id in sorted(found, reverse=True)[:RECENT]]


async def pause(app: App, name: str) -> ScheduleView:
    """Let no tick come until `resume`."""
    return ScheduleView.of(app, await schedules.pause(await app.connections.get(), name))


async def resume(app: App, name: str) -> ScheduleView:
    """End a pause."""
    return ScheduleView.of(app, await schedules.resume(await app.connections.get(), name))


async def trigger(app: App, name: str) -> Enqueued:
    """Enqueue a schedule's job now."""
    return await schedules.trigger(await app.connections.get(), app.new_job, name)


async def delete(app: App, name: str) -> None:
    """Remove a schedule. Jobs that it made stay."""
    if not await schedules.delete(await app.connections.get(), name):
        raise NotFound("schedule", name)


def _moment(at: datetime | None) -> str | None:
    return None if at is None else shown(round(at.timestamp() * 1000))
