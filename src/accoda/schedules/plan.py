"""Which ticks get a job now, and which tick is next. Pure: the only place where catch-up is decided.

The schedule's job stands for `tick`, which has come. Other ticks may have come since, while no scheduler was running.
Missed ticks are looked up from the newest backwards, at most as many as get a job, so a gap of a year costs no more
than one of a second.
"""

from __future__ import annotations

from msgspec import Struct

from accoda.schedules.model import Schedule
from accoda.schedules.ticks import Ticks

GRACE = 60_000
"""Milliseconds that a tick may be late under `skip`, unless half of the gap to the next tick is less."""


class Plan(Struct, frozen=True):
    """`ticks` get a job each, oldest first; the schedule goes on at `next` (None: it has ended).

    `missed`: other ticks have come and get none.
    """

    ticks: tuple[int, ...]
    next: int | None
    missed: bool = False


def plan(schedule: Schedule, ticks: Ticks, tick: int, now: int) -> Plan:
    """What to do at `now` for a schedule whose job stands for `tick`."""
    now = max(now, tick)  # the job was handed out, so its moment has come even if the clock was set back
    next_tick = ticks.after(now)
    # The tick counts even if it is no tick any more: the rules of its time zone may have changed since it was stored.
    latest = max(tick, ticks.last(now) or tick)
    match schedule.catch_up:
        case "all":
            chosen, missed = _newest(ticks, tick, latest, schedule.catch_up_limit)
            return Plan(chosen, next_tick, missed)
        case "once":
            return Plan((latest,), next_tick, missed=latest != tick)
        case _:
            late = now - latest > _grace(schedule, latest, next_tick)
            return Plan(() if late else (latest,), next_tick, missed=late or latest != tick)


def _newest(ticks: Ticks, first: int, latest: int, limit: int) -> tuple[tuple[int, ...], bool]:
    """The newest `limit` ticks from `first` to `latest`, and whether there are older ones."""
    found: list[int] = []
    at: int | None = latest
    while at is not None and at > first and len(found) < limit:
        found.append(at)
        at = ticks.last(at - 1)
    if len(found) == limit:
        return tuple(reversed(found)), True
    return (first, *reversed(found)), False


def _grace(schedule: Schedule, tick: int, next_tick: int | None) -> int:
    if schedule.grace is not None:
        return round(float(schedule.grace) * 1000)
    return GRACE if next_tick is None else min(GRACE, (next_tick - tick) // 2)
