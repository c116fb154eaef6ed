"""Priority levels of stored jobs: a storage keeps ranks, and people think in levels."""

from __future__ import annotations

from typing import Literal

from accoda.errors import Conflict
from accoda.model import JobInfo
from accoda.operations.handlers import options_of
from accoda.operations.host import Host
from accoda.priority import AGING_STEP, Policy, Priority, aging, enqueued_for, policy, strict

Level = Literal["CRITICAL", "HIGH", "NORMAL", "LOW"]
LEVELS: tuple[Level, ...] = ("CRITICAL", "HIGH", "NORMAL", "LOW")

_A_MOMENT = 1e10
"""A rank above it is a moment in milliseconds (after 1970), so the queue is an aging one."""


def level_of(host: Host, job: JobInfo) -> Level | None:
    """The level that a job was enqueued with; None where its rank does not tell."""
    if job.queue.partition(".")[0] in host.demands:  # a demand's queue, or one of its companions
        return None
    return _level(job)


def new_rank(host: Host, job: JobInfo, level: Level) -> float:
    """The rank that gives a job this level."""
    if job.queue in host.demands:
        raise Conflict(f"job {job.id} belongs to a demand, which ranks it by its waiters; request it with a sooner due")
    rule = _policy(host, job)
    if rule is aging:
        present = level_of(host, job)
        # An aging rank is a moment and a level. Only the level changes: the job keeps its age.
        since = job.rank - Priority[present] * AGING_STEP if present and job.rank >= _A_MOMENT else enqueued_for(job)
        return since + Priority[level] * AGING_STEP
    return rule(Priority[level], enqueued_for(job))


def better_ranks(job: JobInfo) -> list[tuple[Level, float]]:
    """The levels above the job's own, each with the rank that it would give, the nearest first."""
    level = _level(job)
    if level is None:
        return []
    step, own = 1.0 if job.rank < _A_MOMENT else float(AGING_STEP), Priority[level]
    return [(LEVELS[better], job.rank - (own - better) * step) for better in range(own - 1, -1, -1)]


def _level(job: JobInfo) -> Level | None:
    if job.rank < _A_MOMENT:
        return LEVELS[int(job.rank)] if job.rank in (0.0, 1.0, 2.0, 3.0) else None
    level = round((job.rank - enqueued_for(job)) / AGING_STEP)
    return LEVELS[level] if 0 <= level < len(LEVELS) else None


def _policy(host: Host, job: JobInfo) -> Policy:
    options = options_of(host, job.queue)
    if options is not None:
        return policy(options.policy)
    return aging if job.rank >= _A_MOMENT else strict
