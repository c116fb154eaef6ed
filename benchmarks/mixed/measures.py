"""What is measured, each on a fresh store by one worker process. Times are seconds, `share` is of the ideal.

Every run begins with a warm-up, a job for each slot, so that threads, child processes and connections are there. It is
at the head of the queue and does not count.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.mixed.notes import Notes
from benchmarks.mixed.workload import Run, ideal, mixed_lengths, most_at_once, repeated, span
from benchmarks.peers import measures as drains
from benchmarks.peers import stores
from benchmarks.peers.adapting import AdapterFailed, fill, start_workers
from benchmarks.peers.environments import ADAPTERS
from benchmarks.peers.peer import Peer

WARM = 1.0
WARM_CHILDREN = 5.0  # until all child processes have started
DEFAULT_SLOTS = 10
SLOW_JOB, NEIGHBOUR = 30.0, 0.01
BUSY, CORES, BARE_JOBS = 0.05, 2, 20

Values = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """How much work a measurement is."""

    mixed: int = 1500
    neighbours: int = 1000
    busy: int = 500
    drained: float = 1.0  # of the jobs of the other comparison's drains


Bench = stores.Bench[Sample]


@dataclass(frozen=True)
class Work:
    """Jobs for one worker process. The first `unwatched` are not waited for, and do not count."""

    lengths: Sequence[float]
    slots: int
    how: str
    unwatched: int = 0
    rounds: int = 0


def perform(bench: Bench, peer: Peer, work: Work) -> list[Run]:
    """The runs of the jobs that are watched."""
    warm = peer.options.get("warm", WARM_CHILDREN if work.how == "process" else WARM)
    lengths = [warm] * work.slots + list(work.lengths)
    watched = range(work.slots + work.unwatched, len(lengths))
    url = bench.place.fresh()
    with (
        tempfile.TemporaryDirectory(prefix="accoda-mixed-") as folder,
        Notes(Path(folder) / "n", len(lengths)) as notes,
    ):
        ask = {
            "url": url, "lengths": lengths, "count": len(lengths), "slots": work.slots, "how": work.how,
            "rounds": work.rounds, "shared": str(notes.path), "options": peer.options,
        }  # fmt: skip
        fill(peer, ask)
        bench.place.settled(url)
        with start_workers(peer, ask) as crew:
            crew.wait_for(len(watched), lambda: notes.ended(watched))
            return notes.runs(watched)


def values(runs: Sequence[Run], best: float) -> Values:
    seconds = span(runs)
    return {
        "seconds": seconds, "ideal": best, "share": best / seconds,
        "most": most_at_once(runs), "repeated": repeated(runs),
    }  # fmt: skip


def mixed(bench: Bench, peer: Peer, how: str, slots: int) -> Values:
    lengths = mixed_lengths(bench.sample.mixed)
    return values(perform(bench, peer, Work(lengths, slots, how)), ideal(lengths, slots))


# ---- a slow job and its neighbours


def slow(bench: Bench, peer: Peer) -> Values:
    """The slow job is first, so that all its neighbours run beside it; when they are done, it is cut short."""
    lengths = [NEIGHBOUR] * bench.sample.neighbours
    runs = perform(bench, peer, Work([SLOW_JOB, *lengths], DEFAULT_SLOTS, "async", unwatched=1))
    return values(runs, ideal(lengths, DEFAULT_SLOTS - 1))


def nine(bench: Bench, peer: Peer) -> Values:
    """The neighbours alone, on the slots that the slow job leaves."""
    lengths = [NEIGHBOUR] * bench.sample.neighbours
    return values(perform(bench, peer, Work(lengths, DEFAULT_SLOTS - 1, "async")), ideal(lengths, DEFAULT_SLOTS - 1))


# ---- jobs that keep a processor busy


def busy(bench: Bench, peer: Peer) -> Values:
    """Against half of the processor time that the same jobs take in a bare loop, measured right before."""
    with two_cores():
        rounds = rounds_of_a_job()
        best = bench.sample.busy * bare_seconds(rounds) / CORES
        runs = perform(bench, peer, Work([0.0] * bench.sample.busy, DEFAULT_SLOTS, "process", rounds=rounds))
    return values(runs, best)


@functools.cache
def rounds_of_a_job() -> int:
    """How many rounds of the loop take 50 ms of processor time."""
    probe = 1_000_000
    return round(BUSY / bare_seconds(probe) * probe)


def bare_seconds(rounds: int) -> float:
    """Processor seconds of a job in a bare loop, one on each core at once: cores of one machine share its caches."""
    command = [sys.executable, str(ADAPTERS / "timed.py"), str(rounds), str(BARE_JOBS)]
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(CORES)]
    return sum(float(loop.communicate()[0]) for loop in loops) / (CORES * BARE_JOBS)


@contextmanager
def two_cores() -> Iterator[None]:
    """What is started inside runs on two cores, where the system lets one choose."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    if len(before) < CORES:
        raise AdapterFailed(f"needs {CORES} cores, and there is {len(before)}")
    os.sched_setaffinity(0, sorted(before)[:CORES])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# ---- types


def typed(bench: Bench, peer: Peer, types: int) -> Values:
    """A drain of no-op jobs, as in the other comparison: with so many types in the queue, or with none."""
    entry = replace(peer, script="typed", options={**peer.options, "types": types})
    return drains.drain(drains.Bench(bench.place, drains.Sample(share=bench.sample.drained)), entry, 1)


MEASURES: dict[str, Callable[[Bench, Peer], Values]] = {
    "async-10": functools.partial(mixed, how="async", slots=10),
    "async-50": functools.partial(mixed, how="async", slots=50),
    "def-10": functools.partial(mixed, how="def", slots=10),
    "def-50": functools.partial(mixed, how="def", slots=50),
    "slow": slow,
    "nine": nine,
    "busy": busy,
    "untyped": functools.partial(typed, types=0),
    "one-type": functools.partial(typed, types=1),
    "five-types": functools.partial(typed, types=5),
}
WORDS = {
    "async-10": "async def, 10 slots",
    "async-50": "async def, 50 slots",
    "def-10": "def, 10 slots",
    "def-50": "def, 50 slots",
    "slow": "beside a slow job",
    "nine": "nine slots, no slow job",
    "busy": "busy jobs in processes",
    "untyped": "no types",
    "one-type": "one type",
    "five-types": "five types",
}
