"""Schedules, as people see, pause, trigger and delete them, and the jobs that one has made."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any

from msgspec import Struct

from accoda import schedules
from accoda.envelope import Event, unwrap
from accoda.errors import NotFound
from accoda.model import STATES, Enqueued, JobInfo
from accoda.operations.handlers import handler_of
from accoda.operations.host import Host
from accoda.operations.moments import rfc3339
from accoda.operations.plain import plain
from accoda.operations.views import JobView, same
from accoda.schedules.model import CatchUp, Level, Overlap, Source, State
from accoda.schedules.secrets import shown as hidden

UPCOMING = 5
RECENT = 20
LOOKED_AT = 200
"""The first jobs of each state that are searched for those of one schedule."""


class ScheduleView(Struct, rename="camel", frozen=True, kw_only=True):
    """A schedule as it is stored, in words, and with its next ticks. Secret fields of its payload are hidden.

    One that has ended is shown for a week; `problem` says why one is broken. `late`: its tick is overdue.
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
    type: str | None = None
    lane: str | None = None
    source: Source | None = None
    next_at: str | None = None
    last_at: str | None = None
    upcoming: builtins.list[str] = []
    late: bool = False
    problem: str | None = None

    @classmethod
    def of(cls, host: Host, found: schedules.ScheduleView) -> ScheduleView:
        common: dict[str, Any] = {
            "name": found.name,
            "state": found.state,
            "words": found.words,
            "next_at": rfc3339(found.next_at),
            "last_at": rfc3339(found.last_at),
            "upcoming": [rfc3339(tick) for tick in found.upcoming(UPCOMING)],
            "late": found.late,
            "problem": found.problem,
        }
        schedule = found.schedule
        if schedule is None:
            return cls(**common)
        handler = handler_of(host, schedule.queue, schedule.type)
        secret = (*found.secret, *(() if handler is None else handler.options.secret))
        return cls(
            **common,
            **same(schedule, _SAME),
            payload=hidden(plain(hidden(schedule.payload, secret)), secret),  # before and after: see `redaction.safe`
            starts_at=_moment(schedule.starts_at),
            ends_at=_moment(schedule.ends_at),
            webhook_on=[*schedule.webhook_on] if schedule.webhook_url else None,
        )


_SAME = (
    "queue cron tz every priority catch_up catch_up_limit overlap grace enabled job_name max_retries webhook_url "
    "cost keep_for type lane source"
)


async def list(host: Host) -> builtins.list[ScheduleView]:
    """Every schedule by name, with those that are broken or have ended."""
    return [ScheduleView.of(host, each) for each in await schedules.list_all(await host.connections.get())]


async def get(host: Host, name: str) -> ScheduleView:
    """One schedule."""
    return ScheduleView.of(host, await schedules.get(await host.connections.get(), name))


async def recent(host: Host, view: ScheduleView) -> builtins.list[JobView]:
    """Stored jobs that a schedule has made, the newest first, as far as they are among the first of the queue."""
    if view.queue is None:
        return []
    store = await host.connections.get()
    found: dict[int, JobInfo] = {}
    for state in STATES:
        jobs = await store.browse(view.queue, state, limit=LOOKED_AT)
        found |= {job.id: job for job in jobs if unwrap(job.data)[0].schedule == view.name}
    return [JobView.of(host, found[id]) for id in sorted(found, reverse=True)[:RECENT]]


async def pause(host: Host, name: str) -> ScheduleView:
    """Stop its ticks until `resume`."""
    return ScheduleView.of(host, await schedules.pause(await host.connections.get(), name))


async def resume(host: Host, name: str) -> ScheduleView:
    """End a pause."""
    return ScheduleView.of(host, await schedules.resume(await host.connections.get(), name))


async def trigger(host: Host, name: str) -> Enqueued:
    """Enqueue a schedule's job now."""
    return await schedules.trigger(await host.connections.get(), schedules.maker_of(host), name)


async def delete(host: Host, name: str) -> None:
    """Remove a schedule. Jobs that it made stay."""
    if not await schedules.delete(await host.connections.get(), name):
        raise NotFound("schedule", name)


def _moment(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(round(at.timestamp() * 1000))
