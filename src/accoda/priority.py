"""Priority levels, and the policies that turn a level into a rank.

A policy is a pure function of the level and the moment of enqueueing (milliseconds, by the storage's clock). The lowest
rank is taken first; equal ranks go first in, first out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from accoda.errors import InvalidInput

AGING_STEP = 1_000_000
"""Milliseconds that one level is worth under `aging`: 16 minutes and 40 seconds."""


class Priority(IntEnum):
    """How urgent a job is. Lower is sooner."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3


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


POLICIES: dict[str, Policy] = {"strict": strict, "aging": aging}


def policy(name: str) -> Policy:
    """The policy of that name."""
    try:
        return POLICIES[name]
    except KeyError:
        raise InvalidInput("policy", f"must be one of {', '.join(POLICIES)}, not {name!r}") from None
