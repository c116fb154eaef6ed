"""Priority levels of stored jobs: a storage keeps ranks, and people think in levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from accoda.errors import Conflict
from accoda.model import JobInfo
from accoda.priority import AGING_STEP, Policy, Priority, aging, strict

if TYPE_CHECKING:
    from accoda.app import App

Level = Literal["CRITICAL", "HIGH", "NORMAL", "LOW"]
LEVELS: tuple[Level, ...] = ("CRITICAL", "HIGH", "NORMAL", "LOW")

_A_MOMENT = 1e10
"""A rank beyond it is a moment in milliseconds (of 1970 at least), so the queue is an aging one."""


def level_of(app: App, job: JobInfo) -> Level | None:
    """The level that a job was enqueued with; None where its rank does not tell."""
    if job.queue.partition(".")[0] in app.demands:  # a demand's, or one of its companions'
        return None
    if job.rank < _A_MOMENT:
        return LEVELS[int(job.rank)] if job.rank in (0.0, 1.0, 2.0, 3.0) else None
    level = round((job.rank - _enqueued_for(job)) / AGING_STEP)
    return LEVELS[level] if 0 <= level < len(LEVELS) else None


def new_rank(app: App, job: JobInfo, level: Level) -> float:
    """The rank of a job that shall have this level from now on."""
    if job.queue in app.demands:
        raise Conflict(f"job {job.id} is of a demand, whose ranks follow from who waits; ask for it with a sooner due")
    wanted = Priority[level]
    policy = _policy(app, job)
    if policy is aging:
        present = level_of(app, job)
        # An aging rank is a moment and a level. Only the level changes: the job keeps the age that it has.
        since = job.rank - Priority[present] * AGING_STEP if present and job.rank >= _A_MOMENT else _enqueued_for(job)
        return since + wanted * AGING_STEP
    return policy(wanted, _enqueued_for(job))


def _policy(app: App, job: JobInfo) -> Policy:
    handler = app.handlers.get(job.queue)
    if handler is not None:
        return handler.line.policy
    return aging if job.rank >= _A_MOMENT else strict


def _enqueued_for(job: JobInfo) -> int:
    """The moment from which an aging rank counts: when it was enqueued or, if that was later, when it was to start.

    After several retries that start is no longer known; then it is believed to have been at once.
    """
    starts = {0: job.start_time, 1: job.prev_start_time}
    return max(job.created_at, starts.get(job.attempts) or 0)
