"""What the notes of jobs with a limit say. All of it pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.mixed.workload import Run, most_at_once, repeated, span


@dataclass(frozen=True)
class Limited:
    """Jobs of customers in turn, of `length` seconds each, at most `limit` of a customer at once."""

    customers: int
    jobs: int  # of each customer
    length: float
    limit: int

    @property
    def count(self) -> int:
        return self.customers * self.jobs

    @property
    def ideal(self) -> float:
        """Seconds that a queue without any cost needs: all customers at once, each with as many jobs as it may."""
        return -(-self.jobs // self.limit) * self.length


def tally(work: Limited, runs: Sequence[Run]) -> dict[str, float]:
    """Of the runs of all jobs, in their order.

    A job that has not ended has never run. The share of the ideal counts those that have; most is that of the customer
    with most jobs at once.
    """
    ended = [run for run in runs if run.end > 0]
    by_customer = [[run for run in runs[number :: work.customers] if run.end > 0] for number in range(work.customers)]
    seconds = span(ended)
    return {
        "seconds": seconds,
        "ideal": work.ideal,
        "share": work.ideal * len(ended) / len(runs) / seconds,
        "most": max(most_at_once(mine) for mine in by_customer),
        "never": len(runs) - len(ended),
        "repeated": repeated(runs),
    }
