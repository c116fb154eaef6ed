"""A whole run: every step in turn, noted as it comes, with what is left on the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.flows.catalogue import ONCE, chosen
from benchmarks.flows.measures import MEASURES, WORDS, Bench, Sample
from benchmarks.mixed.running import note_places, open_places, remaining
from benchmarks.peers.adapting import AdapterFailed
from benchmarks.peers.findings import NAMES, Section
from benchmarks.peers.journal import Journal, Plan, Result, Step
from benchmarks.peers.peer import Peer
from benchmarks.peers.running import minutes, prepare, tell


def steps(plan: Plan) -> Iterator[tuple[Step, Peer]]:
    """All queues on all storages take turns at one measure, then at the next; each round begins with another."""
    peers = chosen(plan.storages, plan.names)
    for number in range(plan.rounds):
        start = number * len(peers) // plan.rounds
        for measure in plan.measures:
            if number and measure in ONCE:
                continue
            for peer in (*peers[start:], *peers[:start]):
                if measure in peer.measures:
                    yield Step(peer.storage, peer.name, measure, number), peer


def run(journal: Journal) -> list[Section]:
    """Do what the journal does not have yet; the findings of all storages."""
    todo = [(step, peer) for step, peer in steps(journal.plan) if not journal.is_done(step)]
    peers = [peer for _, peer in todo]
    broken = prepare(journal, "", peers)
    with ExitStack() as running:
        places = open_places(running, list(dict.fromkeys(peer.storage for peer in peers)))
        note_places(journal, places, [peer for peer in peers if peer.adapter not in broken])
        for number, (step, peer) in enumerate(todo):
            if peer.storage not in places or journal.is_hopeless(step):
                continue
            if peer.adapter in broken:
                journal.note(Result(step, 0.0, failed=broken[peer.adapter]))
                continue
            result = one(Bench(places[peer.storage], Sample(**journal.plan.sample)), step, peer)
            journal.note(result)
            left = remaining(journal, [each for each, _ in todo[number + 1 :] if each.storage in places])
            tell(f"{describe(result, peer, journal.plan)}; about {minutes(left)} left")
    return sections(journal)


def one(bench: Bench, step: Step, peer: Peer) -> Result:
    """One measurement. A failure is a result: the others go on."""
    begun = time.monotonic()
    try:
        found = MEASURES[step.measure](bench, peer)
    except AdapterFailed as error:
        return Result(step, time.monotonic() - begun, failed=str(error))
    return Result(step, time.monotonic() - begun, found)


def sections(journal: Journal) -> list[Section]:
    found = []
    for storage, place in journal.places.items():
        peers = chosen([storage], journal.plan.names)
        entries = [journal.entry(peer, [m for m in journal.plan.measures if m in peer.measures]) for peer in peers]
        found.append(Section(storage, place["about"], place["machine"], place["date"], entries))
    return found


def describe(result: Result, peer: Peer, plan: Plan) -> str:
    step = result.step
    what = f"failed: {result.failed}" if result.values is None else _words(step.measure, result.values)
    where = f"round {step.round + 1} of {plan.rounds}, {WORDS[step.measure]}"
    return f"{where}: {peer.title} on {NAMES[step.storage]}: {what} ({result.seconds:.1f} s)"


def _words(measure: str, values: dict[str, float]) -> str:
    if measure == "kills":
        return f"{values['joined']} of {values['flows']} joins, {values['early']} early, {values['twice']} twice"
    if measure == "many":
        return f"{values['rate']:,.0f} flows/s"
    return f"{values['rate']:,.0f} jobs/s"
