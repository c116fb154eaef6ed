"""A whole run: every step in turn, noted as it comes, with what is left on the terminal."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from datetime import UTC, datetime
from statistics import mean
from typing import TypeVar

from proof.servers.process import ServerMissing

from benchmarks.peers import environments
from benchmarks.peers.adapting import AdapterFailed
from benchmarks.peers.catalogue import chosen
from benchmarks.peers.findings import Section
from benchmarks.peers.journal import Journal, Plan, Result, Step
from benchmarks.peers.measures import MEASURES, ONCE, Bench, Sample, Values
from benchmarks.peers.peer import Peer
from benchmarks.peers.stores import PLACES, Place

B = TypeVar("B")
USUAL = {  # seconds a step takes, before any was seen
    "enqueue": 2, "callers": 2, "bulk": 2, "drain1": 6, "drain2": 5, "latency": 4, "delayed": 6, "bytes": 3,
}  # fmt: skip
USUAL_ELSEWHERE = 14.0  # in the comparisons that have other measures


def steps(plan: Plan, storage: str) -> Iterator[tuple[Step, Peer]]:
    return turns(plan, chosen([storage], plan.names), ONCE)


def turns(plan: Plan, peers: Sequence[Peer], once: Container[str]) -> Iterator[tuple[Step, Peer]]:
    """All peers take turns at one measure, then at the next; each round begins with another peer.

    So those that are compared are measured within a minute or two, and no peer is always first.
    """
    for number in range(plan.rounds):
        start = number * len(peers) // plan.rounds
        for measure in plan.measures:
            if number and measure in once:
                continue
            for peer in (*peers[start:], *peers[:start]):
                if measure in measures_of(peer, plan):
                    yield Step(peer.storage, peer.name, measure, number), peer


def measures_of(peer: Peer, plan: Plan) -> list[str]:
    own = peer.measures or plan.measures
    return [measure for measure in plan.measures if measure in own]


def run(journal: Journal) -> Iterator[Section]:
    """Do what the journal does not have yet; gives the section of each storage as soon as it is whole."""
    for storage in journal.plan.storages:
        todo = [(step, peer) for step, peer in steps(journal.plan, storage) if not journal.is_done(step)]
        if todo:
            try:
                measure(journal, storage, todo)
            except ServerMissing as missing:
                tell(f"{storage}: {missing}")
                continue
        yield section(journal, storage, chosen([storage], journal.plan.names))


def measure(journal: Journal, storage: str, todo: Sequence[tuple[Step, Peer]]) -> None:
    peers = [peer for _, peer in todo]
    broken = prepare(peers)
    with PLACES[storage]() as place:
        note_place(journal, storage, place, [peer for peer in peers if peer.adapter not in broken])
        bench = Bench(place, Sample(**journal.plan.sample))
        for number, (step, peer) in enumerate(todo):
            if peer.adapter in broken:
                journal.note(Result(step, 0.0, failed=broken[peer.adapter]))
            elif not journal.is_hopeless(step):
                result = one(MEASURES[step.measure], bench, step, peer)
                journal.note(result)
                left = remaining(journal, [each for each, _ in todo[number + 1 :]])
                tell(f"{describe(result, peer, journal.plan)}; about {minutes(left)} left")


def one(function: Callable[[B, Peer], Values | None], bench: B, step: Step, peer: Peer) -> Result:
    """One measurement. A failure is a result: the others go on."""
    begun = time.monotonic()
    try:
        values = function(bench, peer)
    except AdapterFailed as error:
        return Result(step, time.monotonic() - begun, failed=str(error))
    return Result(step, time.monotonic() - begun, values, none=values is None)


def prepare(peers: Sequence[Peer]) -> dict[str, str]:
    """Make the environments that are missing; those that could not be made, with the reason."""
    broken = {}
    for adapter in dict.fromkeys(peer.adapter for peer in peers):
        if not environments.is_made(adapter):
            tell(f"installing {adapter} into an environment of its own")
        try:
            environments.make(adapter)
        except environments.NotInstalled as error:
            broken[adapter] = str(error)
            tell(f"{adapter}: {error}")
    return broken


def note_place(journal: Journal, storage: str, place: Place, peers: Sequence[Peer]) -> None:
    """The storage, the machine, and the versions of the peers on it, beside those that are known."""
    adapters = dict.fromkeys(peer.adapter for peer in peers if peer.storage == storage and not peer.is_ceiling)
    versions = {adapter: " + ".join(environments.versions(adapter).values()) for adapter in adapters}
    known = journal.places.get(storage, {}).get("versions", {})
    journal.note_place(storage, {**facts(journal.plan), "about": place.about, "versions": {**known, **versions}})


def facts(plan: Plan) -> dict[str, str]:
    """The machine, and when."""
    cores, system = os.cpu_count(), f"Python {platform.python_version()} on {platform.system()}"
    busy = f"load average at the start {os.getloadavg()[0]:.1f}"  # much above 0: others shared the machine
    machine = f"{cores} cores, {system}, {busy}; {plan.rounds} round{'s' if plan.rounds > 1 else ''}."
    return {"machine": machine, "date": datetime.now(UTC).strftime("%Y-%m-%d")}


def section(journal: Journal, storage: str, peers: Sequence[Peer]) -> Section:
    place = journal.places[storage]
    entries = [journal.entry(peer, measures_of(peer, journal.plan)) for peer in peers]
    return Section(storage, place["about"], place["machine"], place["date"], entries)


# ---- progress


def remaining(journal: Journal, left: Sequence[Step]) -> float:
    """Seconds of what is left on this storage, and of those that come after it."""
    storages = journal.plan.storages
    later = storages[storages.index(left[0].storage) + 1 :] if left else ()
    ahead = [step for storage in later for step, _ in steps(journal.plan, storage) if not journal.is_done(step)]
    return expected(journal, [*left, *ahead])


def expected(journal: Journal, ahead: Sequence[Step]) -> float:
    """Seconds: each step takes what the same took before, or what others took at that measure."""
    seen: dict[object, list[float]] = {}
    for result in journal.results:
        step = result.step
        seen.setdefault((step.storage, step.name, step.measure), []).append(result.seconds)
        seen.setdefault(step.measure, []).append(result.seconds)

    def seconds(step: Step) -> float:
        known = seen.get((step.storage, step.name, step.measure)) or seen.get(step.measure)
        return mean(known) if known else USUAL.get(step.measure, USUAL_ELSEWHERE)

    return sum(seconds(step) for step in ahead if not journal.is_hopeless(step))


def describe(result: Result, peer: Peer, plan: Plan) -> str:
    step, values = result.step, result.values
    label = peer.title if peer.is_ceiling else f"{peer.title}, {peer.setting.partition(', ')[0]}"
    if values is None:
        what = "none" if result.none else f"failed: {result.failed}"
    elif "rate" in values:
        what = f"{values['rate']:,.0f}/s"
    elif "late" in values:
        late = values["late"]
        what = f"{late[len(late) // 2] * 1e3:,.1f} ms in the middle, {late[-1] * 1e3:,.1f} ms at most"
    else:
        what = f"{values['bytes']:,.0f} bytes"
    where = f"{step.storage}, round {step.round + 1} of {plan.rounds}, {step.measure}"
    return f"{where}: {label}: {what} ({result.seconds:.1f} s)"


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
