"""`python -m benchmarks.manager [seconds] [seeds]`: waits with the manager and without, in virtual time."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.manager.report import compare, table
from benchmarks.manager.workload import SCENARIOS

FIRST = 100
"""The first seed: others than those with which the rule's numbers were tried out."""


async def main(seconds: float, seeds: int) -> None:
    print(f"95th percentile waits in seconds; {seconds:g} virtual seconds, median of {seeds} seeds\n")
    for scenario in SCENARIOS:
        print(table(scenario, compare(scenario, seconds, range(FIRST, FIRST + seeds))), flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(float(given[0]) if given else 600.0, int(given[1]) if len(given) > 1 else 9))
