"""`python -m benchmarks.mixed`: work as teams have it, for Accoda and for the queues that one would use instead.

Most jobs are short, one in twenty takes a second: how close does a worker come to the best schedule? Beside that a slow
job and its neighbours, jobs that keep a processor busy, and queues with jobs of several types. Prints tables and a
verdict; a run of everything with at least three rounds replaces benchmarks/results/mixed.md and its chart.
docs/benchmarks.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.mixed import report
from benchmarks.mixed.catalogue import NAMES, PARTS, STORAGES
from benchmarks.mixed.measures import Sample
from benchmarks.mixed.running import run
from benchmarks.peers.__main__ import RESULTS, RUNS, at_least_one, words
from benchmarks.peers.journal import Journal, NothingToContinue, Plan
from benchmarks.peers.running import minutes, tell

QUICK = Sample(mixed=150, neighbours=100, busy=50, drained=0.15)
PUBLISHED_ROUNDS = 3


def options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mixed", description=__doc__)
    parser.add_argument("--only", type=words(tuple(PARTS)), default=[], help=f"of {', '.join(PARTS)} (all)")
    parser.add_argument("--peers", type=words(NAMES), default=[], help=f"of {', '.join(NAMES)} (all)")
    parser.add_argument("--storage", type=words(STORAGES), default=[], help=f"of {', '.join(STORAGES)} (all)")
    parser.add_argument("--rounds", type=at_least_one, help=f"how often each is measured ({PUBLISHED_ROUNDS})")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the jobs, one round: a look, not a measurement"
    )
    parser.add_argument("--results", type=Path, help="keep the results in this folder, whatever was left out")
    parser.add_argument("--continue", action="store_true", dest="resume", help="go on with a run that was interrupted")
    return parser.parse_args(given)


def plan_of(given: argparse.Namespace) -> Plan:
    rounds = given.rounds or (1 if given.quick else PUBLISHED_ROUNDS)
    measures = [measure for part in PARTS if part in (given.only or PARTS) for measure in PARTS[part]]
    storages = [storage for storage in STORAGES if storage in (given.storage or STORAGES)]
    whole = not (given.only or given.peers or given.storage or given.quick) and rounds >= PUBLISHED_ROUNDS
    return Plan(storages, given.peers, measures, rounds, asdict(QUICK if given.quick else Sample()), whole)


def main(given: Sequence[str] | None = None) -> None:
    asked = options(sys.argv[1:] if given is None else given)
    path = (asked.results or RUNS) / "mixed.jsonl"
    try:
        journal = Journal.resume(path) if asked.resume else Journal.begin(path, plan_of(asked))
    except NothingToContinue as error:
        sys.exit(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ended from outside: stop the servers and workers, too
    begun = time.monotonic()
    try:
        sections = run(journal)
    except KeyboardInterrupt:
        tell(f"interrupted; what was measured is in {path}, and --continue goes on from there")
        sys.exit(130)
    path.unlink()
    print(report.text(sections))
    publish = journal.plan.whole or asked.results is not None
    if publish:
        report.save(asked.results or RESULTS, sections)
    tell(f"{minutes(time.monotonic() - begun)} in all{'' if publish else '; not the whole, so nothing was kept'}")


if __name__ == "__main__":
    main()
