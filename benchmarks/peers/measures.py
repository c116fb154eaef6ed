"""What is measured of a peer, each on a fresh store: a function for each measure, which gives plain values to keep.

Rates are jobs a second, `client` and `server` microseconds of processor time for each job, `memory` bytes, `late` a
list of seconds. None: the peer has no such thing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import processes
from benchmarks.peers.adapting import AdapterFailed, Crew, Reached, fill, produce, start_workers
from benchmarks.peers.peer import Peer
from benchmarks.peers.shared import Shared
from benchmarks.peers.stores import Place

WARM_JOBS = 5  # run by a worker before its lateness is looked at
STORED = 3000  # jobs whose bytes are counted
MOST = 1_000_000  # more than any peer enqueues in the time
LATE_PATIENCE = 15.0  # seconds without a job after which the rest counts as lost

Values = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """How much work a measurement is."""

    share: float = 1.0  # of the jobs of the catalogue, which take a drain about two and a half seconds
    seconds: float = 0.7  # of enqueueing
    lateness: int = 100  # jobs in each round


@dataclass(frozen=True)
class Bench:
    """A place to measure at, and how much."""

    place: Place
    sample: Sample

    def drained(self, peer: Peer) -> int:
        return max(100, round(peer.jobs * self.sample.share))


def drain_by_one(bench: Bench, peer: Peer) -> Values | None:
    return drain(bench, peer, 1)


def drain_by_two(bench: Bench, peer: Peer) -> Values | None:
    return drain(bench, peer, 2) if peer.options.get("processes", 2) >= 2 else None


def drain(bench: Bench, peer: Peer, workers: int) -> Values:
    """A full store is worked off. The clock starts when a fifth has run and stops when the last has.

    By the fifth, a worker that takes many jobs at once has as many in hand as it has at the end, so that in between as
    many were acknowledged as were run.
    """
    count = bench.drained(peer)
    url = bench.place.fresh()
    fill(peer, {"url": url, "count": count, "options": peer.options})
    bench.place.settled(url)
    with _shared() as shared:
        ask = {"url": url, "count": count, "options": peer.options, "measure": "drain", "shared": str(shared.path)}
        with start_workers(peer, ask, workers) as crew:
            first = _moment(bench, crew, crew.wait_for(count // 5, shared.count))
            last = _moment(bench, crew, crew.wait_for(count, shared.count))
    jobs = count - first.count
    if jobs < count // 10:
        raise AdapterFailed(f"{count:,} jobs are too few: when the first fifth was seen, {first.count:,} had run")
    return {
        "jobs": count,
        "rate": jobs / (last.at - first.at),
        "client": _each(first.client, last.client, jobs),
        "server": _each(first.server, last.server, jobs),
        "memory": max(first.memory or 0, last.memory or 0) or None,  # 0 where it has ended by itself
    }


@dataclass(frozen=True)
class Moment:
    """What had been run and used at one time."""

    at: float
    count: int
    client: float | None
    server: float | None
    memory: int | None


def _moment(bench: Bench, crew: Crew, reached: Reached) -> Moment:
    """The server first: of the two it does not go on to other things."""
    server, pids = bench.place.processor_seconds(), _pids(crew)
    client = processes.processor_seconds(pids)
    return Moment(reached.at, reached.count, client, server, processes.memory(pids))


def _pids(crew: Crew) -> list[int]:
    return [pid for leader in crew.leaders for pid in processes.session(leader)]


def _each(before: float | None, after: float | None, jobs: int) -> float | None:
    """Microseconds for each job."""
    return (after - before) * 1e6 / jobs if before is not None and after is not None and jobs else None


def enqueue(bench: Bench, peer: Peer) -> Values | None:
    return put(bench, peer, "enqueue")


def callers(bench: Bench, peer: Peer) -> Values | None:
    return put(bench, peer, "callers")


def bulk(bench: Bench, peer: Peer) -> Values | None:
    return put(bench, peer, "bulk")


def put(bench: Bench, peer: Peer, how: str) -> Values | None:
    """Jobs are put in for about a second, by one process."""
    url = bench.place.fresh()
    ask = {"url": url, "options": peer.options, "measure": how}
    fill(peer, {**ask, "count": 0})
    before: list[float | None] = []
    order = {**ask, "count": MOST, "seconds": bench.sample.seconds}
    found = produce(peer, how, order, lambda: before.append(bench.place.processor_seconds()))
    if found is None:
        return None
    count = found["count"]
    return {
        "jobs": count,
        "rate": count / found["seconds"],
        "client": found["cpu"] * 1e6 / count,
        "server": _each(before[0], bench.place.processor_seconds(), count),
        "callers": found.get("callers", ""),
    }


def latency(bench: Bench, peer: Peer) -> Values | None:
    return lateness(bench, peer, "latency")


def delayed(bench: Bench, peer: Peer) -> Values | None:
    return lateness(bench, peer, "delayed")


def lateness(bench: Bench, peer: Peer, how: str) -> Values | None:
    """One worker with nothing to do; jobs come one at a time (latency), or become due at spread moments (delayed)."""
    count = bench.sample.lateness
    url = bench.place.fresh()
    ask = {"url": url, "options": peer.options, "measure": how}
    fill(peer, {**ask, "count": WARM_JOBS})
    with _shared(count) as shared, start_workers(peer, {**ask, "count": count, "shared": str(shared.path)}) as crew:
        crew.wait_for(WARM_JOBS, shared.count)
        if produce(peer, how, {**ask, "count": count}, lambda: None) is None:
            return None
        crew.wait_for(count, lambda: len(shared.late()), LATE_PATIENCE)
        return {"late": sorted(round(seconds, 6) for seconds in shared.late())}


def stored(bench: Bench, peer: Peer) -> Values:
    """Bytes for a job that waits: those of a store with jobs, less those of one without, by their number."""
    sizes = []
    for count in (0, STORED):
        url = bench.place.fresh()
        fill(peer, {"url": url, "count": count, "options": peer.options, "measure": "bytes"})
        bench.place.settled(url)
        sizes.append(bench.place.size(url))
    return {"bytes": (sizes[1] - sizes[0]) / STORED}


@contextmanager
def _shared(jobs: int = 0) -> Iterator[Shared]:
    with tempfile.TemporaryDirectory(prefix="accoda-peers-") as folder, Shared(Path(folder) / "shared", jobs) as shared:
        yield shared


MEASURES: dict[str, Callable[[Bench, Peer], Values | None]] = {
    "enqueue": enqueue,
    "callers": callers,
    "bulk": bulk,
    "drain1": drain_by_one,
    "drain2": drain_by_two,
    "latency": latency,
    "delayed": delayed,
    "bytes": stored,
}
ONCE = ("bytes",)  # does not change from one round to the next
