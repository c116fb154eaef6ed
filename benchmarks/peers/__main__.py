"""`python -m benchmarks.peers`: the same work for Accoda and for the queues that one would use instead, in turns.

Each peer is installed once into an environment of its own. Prints tables for each storage and a verdict. A run of
all peers and measures with at least three rounds replaces the sections of its storages in benchmarks/results/.
docs/benchmarks.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers import report
from benchmarks.peers.catalogue import PEERS, STORAGES
from benchmarks.peers.findings import Section, load
from benchmarks.peers.journal import Journal, NothingToContinue, Plan
from benchmarks.peers.measures import MEASURES, Sample
from benchmarks.peers.running import minutes, run, tell

RESULTS = Path(__file__).parent.parent / "results"
RUNS = Path(__file__).parent / ".runs"  # what runs have found so far
WHOLE, PART = "whole.jsonl", "part.jsonl"  # a quick look does not put an end to a long run that was interrupted
QUICK = Sample(share=0.15, seconds=0.3, lateness=15)
PUBLISHED_ROUNDS = 3


def words(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """A type for argparse: words with commas between them, each one of the allowed."""

    def read(given: str) -> list[str]:
        found = [word.strip() for word in given.split(",") if word.strip()]
        if unknown := [word for word in found if word not in allowed]:
            raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; choose from {', '.join(allowed)}")
        return found

    return read


def at_least_one(given: str) -> int:
    number = int(given)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def options(given: Sequence[str]) -> argparse.Namespace:
    names = sorted({name for peer in PEERS for name in (peer.name, peer.adapter)})
    most, measures = max(peer.jobs for peer in PEERS), tuple(MEASURES)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--storage", type=words(STORAGES), default=[], help=f"of {', '.join(STORAGES)} (all)")
    parser.add_argument("--peers", type=words(names), default=[], help=f"of {', '.join(names)} (all)")
    parser.add_argument("--measures", type=words(measures), default=[], help=f"of {', '.join(measures)} (all)")
    parser.add_argument("--rounds", type=at_least_one, help="how often each is measured (3)")
    parser.add_argument(
        "--jobs", type=at_least_one, default=most,
        help=f"of a drain, for the fastest ({most:,}); the others get fewer, in proportion to their speed",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small samples, one round: a look, not a measurement")
    parser.add_argument("--results", type=Path, help="keep the results in this folder, whatever was left out")
    parser.add_argument("--continue", action="store_true", dest="resume", help="go on with a run that was interrupted")
    parser.add_argument("--report", action="store_true", help="measure nothing; write tables and charts of peers.json")
    return parser.parse_args(given)


def plan_of(given: argparse.Namespace) -> Plan:
    most = max(peer.jobs for peer in PEERS)
    sample = QUICK if given.quick else Sample(share=given.jobs / most)
    rounds = given.rounds or (1 if given.quick else PUBLISHED_ROUNDS)
    measures = [measure for measure in MEASURES if measure in (given.measures or MEASURES)]
    all_of_it = not (given.peers or given.measures or given.quick) and given.jobs >= most
    storages = [storage for storage in STORAGES if storage in (given.storage or STORAGES)]
    whole = all_of_it and rounds >= PUBLISHED_ROUNDS
    return Plan(storages, given.peers, measures, rounds, asdict(sample), whole)


def journal_of(asked: argparse.Namespace) -> Journal:
    """A new one, or the one of the run that was interrupted: the whole run if there is one, else the part."""
    folder = asked.results or RUNS
    if asked.resume:
        return Journal.resume(folder / (WHOLE if (folder / WHOLE).exists() else PART))
    plan = plan_of(asked)
    path = folder / (WHOLE if plan.whole else PART)
    if plan.whole and path.exists():
        tell(f"an interrupted run was found and put aside as {path.name}.old; --continue would have gone on with it")
        path.rename(path.with_name(f"{path.name}.old"))
    return Journal.begin(path, plan)


def main(given: Sequence[str] | None = None) -> None:
    asked = options(sys.argv[1:] if given is None else given)
    folder = asked.results or RESULTS
    if asked.report:
        report.write(folder, load(folder / "peers.json"))
        return
    try:
        journal = journal_of(asked)
    except NothingToContinue as error:
        sys.exit(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ended from outside: stop the servers and workers, too
    begun = time.monotonic()
    publish = journal.plan.whole or asked.results is not None
    sections: dict[str, Section] = {}
    try:
        for section in run(journal):
            sections[section.storage] = section
            if publish:  # a storage at a time: what comes after may be interrupted
                report.save(folder, {**load(folder / "peers.json"), section.storage: section})
    except KeyboardInterrupt:
        tell(f"interrupted; what was measured is in {journal.path}, and --continue goes on from there")
        sys.exit(130)
    journal.path.unlink()
    print(report.text(sections))
    tell(f"{minutes(time.monotonic() - begun)} in all{'' if publish else '; not the whole, so nothing was kept'}")


if __name__ == "__main__":
    main()
