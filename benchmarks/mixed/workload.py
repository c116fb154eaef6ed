"""The jobs, the best schedule of them, and what the notes of their starts and ends say. All of it pure."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

SHORT, LONG = 0.02, 1.0
ONE_IN = 20
SEED = 23


@dataclass(frozen=True)
class Run:
    """When a job began and ended, in seconds, and how often it was started."""

    start: float
    end: float
    runs: int = 1


def mixed_lengths(count: int) -> list[float]:
    """Jobs of 20 ms, exactly one in twenty of a second instead, shuffled: the same list in each run."""
    long = count // ONE_IN
    lengths = [LONG] * long + [SHORT] * (count - long)
    random.Random(SEED).shuffle(lengths)
    return lengths


def ideal(lengths: Sequence[float], slots: int) -> float:
    """Seconds that a queue without any cost needs: each job starts, in this order, as soon as a slot is free."""
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def span(runs: Sequence[Run]) -> float:
    """From the first start to the last end."""
    return max(run.end for run in runs) - min(run.start for run in runs)


def most_at_once(runs: Sequence[Run]) -> int:
    """How many ran at the same moment at most. One that ends at the moment at which another starts is over."""
    moments = sorted([(run.start, 1) for run in runs] + [(run.end, -1) for run in runs])
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def repeated(runs: Sequence[Run]) -> int:
    return sum(run.runs > 1 for run in runs)
