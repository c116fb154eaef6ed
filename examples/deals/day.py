"""`python -m examples.deals.day`: a simulated day, with and without each of Accoda's features, and a report."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, wait
from ctypes import c_double
from pathlib import Path
from typing import Any

from .api import Faults, Terms
from .app import Plan
from .automations import population
from .report import Row, row_of, save, text
from .simulation import Period, simulate

AUTOMATIONS = 150
TERMS = Terms(capacity=20, rate=20, latency=0.4, faults=Faults(errors=0.01, slow=0.01, broken=0.005, slow_for=5.0))
VARIANTS: Mapping[str, Plan] = {
    "everything": Plan(),
    "without prefetch": Plan(prefetches=False),
    "without priority": Plan(ranked=False),
    "without sharing": Plan(shared=False),
    "sharing alone": Plan(ranked=False, prefetches=False),
    "priority alone": Plan(shared=False, prefetches=False),
    "none of them": Plan(shared=False, ranked=False, prefetches=False),
}
RESULTS = Path(__file__).parent / "results"

Progress = Callable[[list[float]], None]


def run_one(name: str, hours: float, seed: int, progress: Callable[[float], None] = lambda share: None) -> Row:
    """One variant. All have the same automations, so the same requests at the same moments."""
    period = Period(VARIANTS[name], TERMS, population(AUTOMATIONS, seed), hours)
    return row_of(name, simulate(period, progress))


def run_all(hours: float, seed: int, progress: Progress) -> list[Row]:
    """Every variant, each in a process of its own, as many at once as there are processors."""
    context = multiprocessing.get_context("spawn")
    shares: Any = context.Array(c_double, len(VARIANTS), lock=False)  # each place has one writer
    with ProcessPoolExecutor(mp_context=context, initializer=_begin, initargs=(shares,)) as pool:
        futures = [pool.submit(_run_place, place, name, hours, seed) for place, name in enumerate(VARIANTS)]
        while wait(futures, timeout=0.2).not_done:
            progress(list(shares))
            if failed := [error for future in futures if future.done() and (error := future.exception())]:
                pool.shutdown(cancel_futures=True)
                raise failed[0]
        progress([1.0] * len(futures))
        return [future.result() for future in futures]


_shares: Any = None


def _begin(shares: Any) -> None:
    global _shares
    _shares = shares


def _run_place(place: int, name: str, hours: float, seed: int) -> Row:
    def progress(share: float) -> None:
        _shares[place] = share

    row = run_one(name, hours, seed, progress)
    progress(1.0)
    return row


def _show(shares: list[float]) -> None:
    """One line that is written over again and again: how far the variants are, together."""
    share = sum(shares) / len(shares)
    over = sum(one >= 1 for one in shares)
    sys.stderr.write(f"\r{'█' * round(40 * share):<40} {over} of {len(shares)} variants")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> None:
    """Run, print, and save."""
    parser = argparse.ArgumentParser(prog="python -m examples.deals.day", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="how long the day is (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the automations (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the report")
    given = parser.parse_args(arguments)
    began = time.perf_counter()
    rows = run_all(given.hours, given.seed, _show)
    sys.stderr.write("\n\n")
    print(text(rows, given.hours))
    save(rows, given.hours, given.out)
    print(f"\n{time.perf_counter() - began:.0f} s. day.md, day.json and day.svg are in {given.out}")


if __name__ == "__main__":
    main()
