"""A comparison beside the main one: its command line, and a run in which the queues on all storages take turns."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from proof.servers.process import ServerMissing

from benchmarks.peers.__main__ import PUBLISHED_ROUNDS, RESULTS, RUNS, at_least_one, words
from benchmarks.peers.findings import NAMES, Section
from benchmarks.peers.journal import Journal, NothingToContinue, Plan, Result, Step
from benchmarks.peers.measures import Values
from benchmarks.peers.peer import Peer
from benchmarks.peers.running import expected, minutes, note_place, one, prepare, section, tell, turns
from benchmarks.peers.stores import PLACES, Bench, Place

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


class Report(Protocol):
    """A module that makes text of the findings, and keeps them in a folder."""

    def text(self, sections: Sequence[Section], /) -> str: ...
    def save(self, folder: Path, sections: Sequence[Section], /) -> None: ...


@dataclass(frozen=True)
class Comparison(Generic[S]):
    """What is particular to one comparison. `S` says how much work a measurement is."""

    name: str
    about: str | None
    entries: Sequence[Peer]
    storages: Sequence[str]
    parts: Mapping[str, Sequence[str]]  # measures that one asks for together
    measures: Mapping[str, Callable[[Bench[S], Peer], Values]]
    words: Mapping[str, str]  # what a measure is called
    sample: S
    quick: S
    report: Report
    found: Callable[[str, Values], str]  # a measure and its values, in a few words
    once: Sequence[str] = ()  # measures of one round, however many there are
    rounds_help: str = "how often each is measured"
    quick_help: str = "a tenth of the jobs"

    # ---- the command line

    def main(self, given: Sequence[str] | None = None) -> None:
        asked = self.options(sys.argv[1:] if given is None else given)
        path = (asked.results or RUNS) / f"{self.name}.jsonl"
        try:
            journal = Journal.resume(path) if asked.resume else Journal.begin(path, self.plan_of(asked))
        except NothingToContinue as error:
            sys.exit(str(error))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ended from outside: stop the servers and workers, too
        begun = time.monotonic()
        try:
            sections = self.run(journal)
        except KeyboardInterrupt:
            tell(f"interrupted; what was measured is in {path}, and --continue goes on from there")
            sys.exit(130)
        path.unlink()
        print(self.report.text(sections))
        publish = journal.plan.whole or asked.results is not None
        if publish:
            self.report.save(asked.results or RESULTS, sections)
        tell(f"{minutes(time.monotonic() - begun)} in all{'' if publish else '; not the whole, so nothing was kept'}")

    def options(self, given: Sequence[str]) -> argparse.Namespace:
        names = tuple(dict.fromkeys(name for peer in self.entries for name in (peer.adapter, peer.name)))
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{self.name}", description=self.about)
        for option, allowed in (("--only", tuple(self.parts)), ("--peers", names), ("--storage", self.storages)):
            parser.add_argument(option, type=words(allowed), default=[], help=f"of {', '.join(allowed)} (all)")
        parser.add_argument("--rounds", type=at_least_one, help=f"{self.rounds_help} ({PUBLISHED_ROUNDS})")
        quick = f"{self.quick_help}, one round: a look, not a measurement"
        parser.add_argument("--quick", action="store_true", help=quick)
        parser.add_argument("--results", type=Path, help="keep the results in this folder, whatever was left out")
        resume = "go on with a run that was interrupted"
        parser.add_argument("--continue", action="store_true", dest="resume", help=resume)
        return parser.parse_args(given)

    def plan_of(self, given: argparse.Namespace) -> Plan:
        rounds = given.rounds or (1 if given.quick else PUBLISHED_ROUNDS)
        measures = [each for part in self.parts if part in (given.only or self.parts) for each in self.parts[part]]
        storages = [storage for storage in self.storages if storage in (given.storage or self.storages)]
        whole = not (given.only or given.peers or given.storage or given.quick) and rounds >= PUBLISHED_ROUNDS
        return Plan(storages, given.peers, measures, rounds, asdict(self.quick if given.quick else self.sample), whole)

    # ---- a whole run

    def chosen(self, storages: Sequence[str], names: Sequence[str]) -> list[Peer]:
        """The entries of these storages, all or those named; Accoda is always among them."""
        return [
            peer
            for peer in self.entries
            if peer.storage in storages and (not names or peer.ours or {peer.name, peer.adapter} & set(names))
        ]

    def steps(self, plan: Plan) -> Iterator[tuple[Step, Peer]]:
        return turns(plan, self.chosen(plan.storages, plan.names), self.once)

    def run(self, journal: Journal) -> list[Section]:
        """Do what the journal does not have yet; the findings of all storages."""
        todo = [(step, peer) for step, peer in self.steps(journal.plan) if not journal.is_done(step)]
        peers = [peer for _, peer in todo]
        broken = prepare(peers)
        sample = replace(self.sample, **journal.plan.sample)
        with ExitStack() as running:
            places = open_places(running, dict.fromkeys(peer.storage for peer in peers))
            for storage, place in places.items():
                note_place(journal, storage, place, [peer for peer in peers if peer.adapter not in broken])
            for number, (step, peer) in enumerate(todo):
                if peer.storage not in places or journal.is_hopeless(step):
                    continue
                if peer.adapter in broken:
                    journal.note(Result(step, 0.0, failed=broken[peer.adapter]))
                    continue
                result = one(self.measures[step.measure], Bench(places[peer.storage], sample), step, peer)
                journal.note(result)
                left = expected(journal, [each for each, _ in todo[number + 1 :] if each.storage in places])
                tell(f"{self.describe(result, peer, journal.plan)}; about {minutes(left)} left")
        names = journal.plan.names
        return [section(journal, storage, self.chosen([storage], names)) for storage in journal.places]

    def describe(self, result: Result, peer: Peer, plan: Plan) -> str:
        step, values = result.step, result.values
        what = f"failed: {result.failed}" if values is None else self.found(step.measure, values)
        where = f"round {step.round + 1} of {plan.rounds}, {self.words[step.measure]}"
        return f"{where}: {peer.title} on {NAMES[step.storage]}: {what} ({result.seconds:.1f} s)"


def open_places(running: ExitStack, storages: Iterable[str]) -> dict[str, Place]:
    """All at once, since queues on different storages take turns; without those whose server is not installed."""
    places = {}
    for storage in storages:
        try:
            places[storage] = running.enter_context(PLACES[storage]())
        except ServerMissing as missing:
            tell(f"{storage}: {missing}")
    return places
