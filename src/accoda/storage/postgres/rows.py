"""From rows to the records that people look at. What producers and workers get is made in storage.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from accoda.model import (
    Cancel,
    Change,
    JobInfo,
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

STATES: tuple[State, ...] = ("ready", "delayed", "taken", "dead", "done", "cancelled")  # by their numbers in the tables
STATE_NUMBERS = {name: number for number, name in enumerate(STATES)}
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
        now, name, ready, taken, delayed, dead, done, retried, buried, expired, cancelled, promoted, until, oldest = row
        queues[name] = QueueStats(
            total=ready + taken + delayed + dead,
            ready=ready,
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
