"""Priority levels, and the policies that turn a level into a rank.

A policy is a pure function of the level and the moment of enqueueing (milliseconds, by the storage's clock). The lowest
rank is taken first; equal ranks go first in, first out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from accoda.errors import InvalidInput
from accoda.model import Job, JobInfo

AGING_STEP = 1_000_000
"""Milliseconds that one level is worth under `aging`: 16 minutes and 40 seconds."""


class Priority(IntEnum):
    """How urgent a job is. Lower is sooner.

    >>> Priority("high")
    <Priority.HIGH: 1>
    """

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3

    @classmethod
    def _missing_(cls, value: object) -> Priority | None:
        """The level of a name, in any case."""
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


def read_priority(value: object) -> Priority:
    """A level as users write it: `Priority.HIGH`, or its name in any case."""
    try:
        return Priority(value)  # type: ignore[arg-type]
    except ValueError:
        raise InvalidInput("priority", f"must be one of {', '.join(Priority.__members__)}, not {value!r:.60}") from None


Policy = Callable[[Priority, int], float]


def strict(priority: Priority, enqueued_at: int) -> float:
    """The level alone: CRITICAL always first, however long the others have waited.

    >>> strict(Priority.HIGH, 1_704_067_200_000)
    1.0
    """
    return float(priority)


def aging(priority: Priority, enqueued_at: int) -> float:
    """The moment of enqueueing plus a handicap for each level: a LOW job waits at most 50 minutes more than a
    CRITICAL one, so nothing starves.

    >>> aging(Priority.LOW, 1_704_067_200_000) - aging(Priority.CRITICAL, 1_704_067_200_000)
    3000000.0
    """
    return float(enqueued_at + priority * AGING_STEP)


def enqueued_for(job: Job | JobInfo) -> int:
    """The moment from which an aging rank counts: the job's creation, or its first start time if that was later.

    After several retries the first start time is no longer stored; the creation is then the best guess.
    """
    starts = {0: job.start_time, 1: job.prev_start_time}
    return max(job.created_at, starts.get(job.attempts) or 0)


POLICIES: dict[str, Policy] = {"strict": strict, "aging": aging}


def policy(name: str) -> Policy:
    """The policy of that name."""
    try:
        return POLICIES[name]
    except KeyError:
        raise InvalidInput("policy", f"must be one of {', '.join(POLICIES)}, not {name!r}") from None
