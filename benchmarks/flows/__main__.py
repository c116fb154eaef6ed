"""`python -m benchmarks.flows`: jobs that depend on each other, for Accoda and for the queues that have a join.

A fan of 1,000 members and its join; twenty fans whose worker is killed ten times; and Accoda alone with one flow of
10,000 nodes and 10,000 flows of ten. Prints tables and a verdict; a run of everything with at least three rounds
replaces benchmarks/results/flows.md and its chart. docs/benchmarks.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.flows import report
from benchmarks.flows.catalogue import NAMES, PARTS, STORAGES
from benchmarks.flows.measures import Sample
from benchmarks.flows.running import run
from benchmarks.peers.__main__ import RESULTS, RUNS, at_least_one, words
from benchmarks.peers.journal import Journal, NothingToContinue, Plan
from benchmarks.peers.running import minutes, tell

QUICK = Sample(fan=200, kill_flows=5, kill_members=40, kills=3, quiet=40.0, wide=1000, many=200)
PUBLISHED_ROUNDS = 3


def options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flows", description=__doc__)
    parser.add_argument("--only", type=words(tuple(PARTS)), default=[], help=f"of {', '.join(PARTS)} (all)")
    parser.add_argument("--peers", type=words(NAMES), default=[], help=f"of {', '.join(NAMES)} (all)")
    parser.add_argument("--storage", type=words(STORAGES), default=[], help=f"of {', '.join(STORAGES)} (all)")
    parser.add_argument("--rounds", type=at_least_one, help=f"how often a fan is measured ({PUBLISHED_ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="small flows, one round: a look, not a measurement")
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
    path = (asked.results or RUNS) / "flows.jsonl"
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
