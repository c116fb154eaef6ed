"""A whole run: every step in turn, noted as it comes, with what is left on the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import mean

from proof.servers.process import ServerMissing

from benchmarks.mixed.catalogue import chosen
from benchmarks.mixed.measures import MEASURES, WORDS, Bench, Sample
from benchmarks.peers import environments
from benchmarks.peers.adapting import AdapterFailed
from benchmarks.peers.findings import NAMES, Section
from benchmarks.peers.journal import Journal, Plan, Result, Step
from benchmarks.peers.peer import Peer
from benchmarks.peers.running import facts, minutes, prepare, tell
from benchmarks.peers.stores import PLACES, Place

USUAL = 14.0  # seconds of a step, before any was seen


def steps(plan: Plan) -> Iterator[tuple[Step, Peer]]:
    """All queues on all storages take turns at one measure, then at the next; each round begins with another."""
    peers = chosen(plan.storages, plan.names)
    for number in range(plan.rounds):
        start = number * len(peers) // plan.rounds
        for measure in plan.measures:
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


def open_places(running: ExitStack, storages: Sequence[str]) -> dict[str, Place]:
    """All at once, since queues on different storages take turns; without those whose server is not installed."""
    places = {}
    for storage in storages:
        try:
            places[storage] = running.enter_context(PLACES[storage]())
        except ServerMissing as missing:
            tell(f"{storage}: {missing}")
    return places


def note_places(journal: Journal, places: Mapping[str, Place], peers: Sequence[Peer]) -> None:
    for storage, place in places.items():
        adapters = dict.fromkeys(peer.adapter for peer in peers if peer.storage == storage)
        versions = {adapter: " + ".join(environments.versions(adapter).values()) for adapter in adapters}
        known = journal.places.get(storage, {}).get("versions", {})
        journal.note_place(
            storage, {**facts(journal.plan), "about": place.about, "versions": {**known, **versions}}
        )  # fmt: skip


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


# ---- progress


def remaining(journal: Journal, left: Sequence[Step]) -> float:
    """Seconds: each step takes what the same took before, or what others took at that measure."""
    seen: dict[object, list[float]] = {}
    for result in journal.results:
        step = result.step
        seen.setdefault((step.storage, step.name, step.measure), []).append(result.seconds)
        seen.setdefault(step.measure, []).append(result.seconds)

    def expected(step: Step) -> float:
        known = seen.get((step.storage, step.name, step.measure)) or seen.get(step.measure)
        return mean(known) if known else USUAL

    return sum(expected(step) for step in left if not journal.is_hopeless(step))


def describe(result: Result, peer: Peer, plan: Plan) -> str:
    step, values = result.step, result.values
    if values is None:
        what = f"failed: {result.failed}"
    elif "rate" in values:
        what = f"{values['rate']:,.0f}/s"
    else:
        what = f"{values['share']:.0%} of the ideal, {values['seconds']:.2f} s for {values['ideal']:.2f} s"
    where = f"round {step.round + 1} of {plan.rounds}, {WORDS[step.measure]}"
    return f"{where}: {peer.title} on {NAMES[step.storage]}: {what} ({result.seconds:.1f} s)"
