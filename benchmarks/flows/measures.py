"""What is measured, each on a fresh store with one worker process. Times are seconds, rates are by the second.

`fan` and `wide` start their flow while a worker waits that has run a small flow before. `kills` and `many` start all
flows first, and then a worker.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.flows.notes import NotesFile, new_notes
from benchmarks.peers import stores
from benchmarks.peers.adapting import STALL_PATIENCE, AdapterFailed, Ask, Crew, produce, start_workers
from benchmarks.peers.environments import clean_environment, command_of
from benchmarks.peers.fire import Group
from benchmarks.peers.peer import Peer

WARM_MEMBERS = 50
AT_ONCE = 50  # flows that are started at once, where there are many
SECOND_JOIN = 0.3  # seconds in which a second join may show itself after the first
START_PATIENCE = 300.0  # for starting many flows

Values = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """How much work a measurement is."""

    fan: int = 1000  # members
    kill_flows: int = 20
    kill_members: int = 100
    length: float = 0.005  # seconds of a member that may be hit by a kill
    kills: int = 10
    quiet: float = 45.0  # seconds without a note after which what is missing counts as never
    wide: int = 10_000  # nodes of one flow
    many: int = 10_000  # flows of ten nodes


Bench = stores.Bench[Sample]


# ---- a fan


def fan(bench: Bench, peer: Peer) -> Values:
    """From the start of a flow until its join has run."""
    members = bench.sample.fan
    with new_notes() as notes:
        started = one_flow(peer, ask_for(peer, bench, notes, members=members, warm=WARM_MEMBERS), notes).started
        time.sleep(SECOND_JOIN)
        flow = notes.tally().flows[1]
        assert flow.joined_at is not None
        assert flow.started_at is not None
        seconds = flow.joined_at - flow.started_at
        joins = notes.tally().verdict(1, members)
    return {"seconds": seconds, "rate": (members + 1) / seconds, "start": started, "members": members, **joins}


@dataclass(frozen=True)
class Ran:
    """How long the start of a flow took, and the most memory that its worker had."""

    started: float
    memory: int | None


def one_flow(peer: Peer, ask: Ask, notes: NotesFile) -> Ran:
    """Start a flow while a worker waits, and wait for its join."""
    with start_workers(peer, ask) as crew:
        started = start_flows(peer, ask, lambda: warm_up(crew, notes))
        wait_for(crew, notes, ask["members"], flows=1)
        return Ran(started, peak_memory(crew.leaders[0]))


def ask_for(peer: Peer, bench: Bench, notes: NotesFile, **more: Any) -> Ask:
    return {
        "url": bench.place.fresh(), "notes": str(notes.path), "options": peer.options, "seconds": START_PATIENCE,
        **more,
    }  # fmt: skip


def start_flows(peer: Peer, ask: Ask, ready: Callable[[], None]) -> float:
    """Let the producer start them; how long that took."""
    told = produce(peer, "start", ask, ready)
    assert told is not None
    return float(told["seconds"])


def warm_up(crew: Crew, notes: NotesFile) -> None:
    crew.wait_for(1, lambda: int(notes.tally().warmed))


def wait_for(crew: Crew, notes: NotesFile, members: int, flows: int) -> None:
    """Until all members have ended and all joins have run. Either counts as progress."""
    crew.wait_for(flows * (members + 1), lambda: notes.tally().ended + notes.tally().joined)


def peak_memory(process: int) -> int | None:
    """Bytes; None where the system does not tell."""
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        return None
    lines = status.read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), None)


# ---- the same under kills


def kills(bench: Bench, peer: Peer) -> Values:
    """The worker is killed again and again in the middle of its work, and started again at once."""
    sample = bench.sample
    with new_notes() as notes, tempfile.TemporaryFile() as said:
        shape = {"flows": sample.kill_flows, "members": sample.kill_members, "length": sample.length}
        ask = ask_for(peer, bench, notes, **shape)
        start_flows(peer, ask, lambda: None)
        command = [*command_of(peer.adapter, peer.script), "work", json.dumps(ask)]
        group = Group(command, clean_environment(peer.adapter), said.fileno())
        try:
            shoot(group, notes, sample)
            killed_at = time.monotonic()
            wait_until_quiet(notes, sample, peer.options.get("quiet", sample.quiet))
        finally:
            group.kill()
        tally = notes.tally()
        found = tally.verdict(sample.kill_flows, sample.kill_members)
    last = max(0.0, tally.last_at - killed_at) if not found["never"] else None
    return {"kills": sample.kills, "seconds": last, **found}


def shoot(group: Group, notes: NotesFile, sample: Sample) -> None:
    """Each kill comes when a further share of the members has ended, and a few milliseconds later."""
    chance = random.Random(7)
    members = sample.kill_flows * sample.kill_members
    for number in range(sample.kills):
        wait_for_share(notes, round((number + 1) * members * 0.9 / (sample.kills + 1)))
        time.sleep(chance.uniform(0, 2 * sample.length))
        group.kill()
        group.start()


def wait_for_share(notes: NotesFile, share: int) -> None:
    """A queue that has lost members may never come so far: then the kill hits a worker that waits."""
    end = time.monotonic() + STALL_PATIENCE
    while notes.tally().ended < share and time.monotonic() < end:
        time.sleep(0.002)


def wait_until_quiet(notes: NotesFile, sample: Sample, quiet: float) -> None:
    """Until all is done, and a second join had its chance; or nothing more comes."""
    wanted = sample.kill_flows * (sample.kill_members + 1)
    seen, end = -1, 0.0
    while time.monotonic() < end or seen < 0:
        tally = notes.tally()
        now = tally.ended + tally.joined
        if now != seen:
            seen, end = now, time.monotonic() + quiet
        if seen >= wanted:
            time.sleep(10 * SECOND_JOIN)
            return
        time.sleep(0.02)


# ---- scale


def wide(bench: Bench, peer: Peer) -> Values:
    """One large flow: its start, its run until the join, and a look at it with all its nodes."""
    members = bench.sample.wide - 1
    with new_notes() as notes:
        ask = ask_for(peer, bench, notes, members=members, warm=WARM_MEMBERS)
        ran = one_flow(peer, ask, notes)
        flow = notes.tally().flows[1]
        assert flow.joined_at is not None
        assert flow.started_at is not None
        told = produce(peer, "get", {**ask, "warm": 0}, lambda: None)
        assert told is not None
        joins = notes.tally().verdict(1, members)
    seconds = flow.joined_at - flow.started_at
    return {
        "nodes": members + 1, "start": ran.started, "seconds": seconds, "rate": (members + 1) / seconds,
        "get": told["seconds"], "memory": ran.memory, **joins,
    }  # fmt: skip


def many(bench: Bench, peer: Peer) -> Values:
    """Many flows of ten nodes: one node, eight after it, and one after those."""
    flows, members, nodes = bench.sample.many, 8, 10
    with new_notes() as notes:
        ask = ask_for(peer, bench, notes, flows=flows, members=members, diamond=True, at_once=AT_ONCE)
        started = start_flows(peer, ask, lambda: None)
        bench.place.settled(ask["url"])
        with start_workers(peer, ask) as crew:
            wait_for(crew, notes, members, flows)
            memory = peak_memory(crew.leaders[0])
        tally = notes.tally()
        if tally.first_at is None or tally.last_at <= tally.first_at:
            raise AdapterFailed(f"{flows:,} flows are too few to be timed")
        seconds = tally.last_at - tally.first_at
        joins = tally.verdict(flows, members)
    return {
        "started": flows / started, "rate": flows / seconds, "jobs": flows * nodes / seconds, "seconds": seconds,
        "memory": memory, **joins,
    }  # fmt: skip


MEASURES: dict[str, Callable[[Bench, Peer], Values]] = {"fan": fan, "kills": kills, "wide": wide, "many": many}
WORDS = {"fan": "a fan and its join", "kills": "under kills", "wide": "one large flow", "many": "many flows"}
