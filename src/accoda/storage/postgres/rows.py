"""From rows to the records that people look at. What producers and workers get is made in storage.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from accoda.model import (
    Cancel,
    Change,
    JobInfo,
    LaneInfo,
    Lanes,
    LanesInfo,
    Look,
    NotCrashed,
    QueueStats,
    Remove,
    Rerank,
    Revive,
    StartNow,
    State,
    Stats,
    Why,
)

STATES: dict[int, State] = {  # by their numbers in the tables
    -1: "held", 0: "ready", 1: "delayed", 2: "taken", 3: "dead", 4: "done", 5: "cancelled",
}  # fmt: skip
STATE_NUMBERS = {name: number for number, name in STATES.items()}
FOR_EVER = (1 << 63) - 1
WHY: dict[int, Why] = {1: "lost", 2: "grown", 3: "cancelled"}  # by the verdicts of verbs/settle.sql
_CHANGES = {Remove: 0, Revive: 1, StartNow: 2, Rerank: 3, NotCrashed: 4, Cancel: 5}


def change_row(change: Change) -> tuple[Any, ...]:
    """As the type `change` in verbs/change.sql."""
    return _CHANGES[type(change)], change.id, change.waiters, change.queue, getattr(change, "rank", None)


def job_info(row: Iterable[Any]) -> JobInfo:
    values = list(row)  # in the order of JobInfo's fields
    values[2] = STATES[values[2]]
    return JobInfo(*values)


def look(row: Any) -> Look:
    at, job, waiters, ahead, newer = row
    return Look(at) if job is None else Look(at, job_info(job), tuple(waiters or ()), ahead, newer or 0)


def stats(rows: Iterable[Any]) -> Stats:
    queues = {}
    for row in rows:
        now, name, ready, taken, delayed, dead, done, retried, buried, expired, cancelled, promoted, until, *rest = row
        oldest, held = rest
        queues[name] = QueueStats(
            total=ready + held + taken + delayed + dead,
            ready=ready,
            held=held,
            taken=taken,
            delayed=delayed,
            dead=dead,
            oldest_age=0.0 if oldest is None else max(0, now - oldest) / 1000,
            done=done,
            retried=retried,
            buried=buried,
            expired=expired,
            cancelled=cancelled,
            promoted=promoted,
            paused=until is not None,
            paused_until=None if until == FOR_EVER else until,
        )
    return Stats(queues)


def lanes(row: Any) -> LanesInfo:
    rules, found, count = row
    known = None if rules is None else msgspec.json.decode(rules, type=Lanes)
    return LanesInfo(known, tuple(LaneInfo(*each) for each in found), count)
