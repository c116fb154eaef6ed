"""What is measured, each on a fresh store. Rates are by the second, times are seconds, `share` is of the ideal."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.lanes.tally import Limited, tally
from benchmarks.mixed.notes import Notes
from benchmarks.peers import stores
from benchmarks.peers.adapting import AdapterFailed, Ask, fill, produce, start_workers
from benchmarks.peers.peer import Peer

LANE_LIMIT, BATCH = 1000, 100  # so a worker can take ahead, or cannot: its lane is full while a batch runs
THOUSAND = 1000
CUSTOMERS, LIMIT, SLOTS = 10, 2, 50
TURN_SLOTS = 10
FIFO_JOB = 0.001  # seconds, where all jobs have to run until the last have started
WARM = 1.0
LONG = 120.0  # more seconds than any drain takes
LOOK = 0.01

Values = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """How much work a measurement is."""

    jobs: int = 20_000
    large: int = 100_000  # where each job has a lane of its own
    crowd: int = 10_000  # jobs of the customer with many
    others: int = 50  # customers with one
    limited: int = 200  # jobs of each customer that has a limit
    length: float = 0.02  # seconds of a job, in turns and with a limit
    quiet: float = 20.0  # seconds without an end after which what is missing counts as never


Bench = stores.Bench[Sample]


# ---- rates


def rates(bench: Bench, peer: Peer, lanes: int | None, large: bool = False, limit: int = LANE_LIMIT) -> Values:
    """No-op jobs are put in and worked off. `lanes`: jobs of so many in turn, 0: of none; None: each has its own."""
    jobs = bench.sample.large if large else bench.sample.jobs
    lanes = jobs if lanes is None else lanes
    ask = {"jobs": jobs, "lanes": lanes, "limit": limit, "fair": True}
    return {"jobs": jobs, "lanes": lanes, **put_and_run(bench, peer, "rates", ask)}


def put_and_run(bench: Bench, peer: Peer, what: str, ask: Ask) -> Values:
    """One process puts the jobs in, and works when the storage has settled."""
    url = bench.place.fresh()
    ask = {"url": url, "options": peer.options, "seconds": LONG, **ask}
    found = produce(replace(peer, script=what), what, ask, lambda: bench.place.settled(url))
    if found is None:
        raise AdapterFailed("the adapter has no such measure")
    return found


# ---- turns


def turns(bench: Bench, peer: Peer, fair: bool, workers: int = 1) -> Values:
    """Many jobs of one customer, then one of each of others: at which start all of those have started."""
    sample = bench.sample
    ask = {
        "jobs": sample.crowd, "others": sample.others, "fair": fair, "workers": workers, "slots": TURN_SLOTS,
        "length": sample.length if fair else FIFO_JOB,
    }  # fmt: skip
    return {"crowd": sample.crowd, "others": sample.others, **put_and_run(bench, peer, "turns", ask)}


# ---- a limit


def limit(bench: Bench, peer: Peer) -> Values:
    """Jobs of all customers in turn, which wait when the worker starts, behind one for each slot that warms it up."""
    sample = bench.sample
    work = Limited(CUSTOMERS, sample.limited, sample.length, LIMIT)
    lengths = [WARM] * SLOTS + [work.length] * work.count
    watched = range(SLOTS, len(lengths))
    peer, url = replace(peer, script="limit"), bench.place.fresh()
    with (
        tempfile.TemporaryDirectory(prefix="accoda-lanes-") as folder,
        Notes(Path(folder) / "n", len(lengths)) as notes,
    ):
        ask = {
            "url": url, "lengths": lengths, "count": len(lengths), "slots": SLOTS, "how": "async",
            "shared": str(notes.path), "options": {**peer.options, "limit": LIMIT, "customers": CUSTOMERS},
        }  # fmt: skip
        fill(peer, ask)
        bench.place.settled(url)
        with start_workers(peer, ask) as crew:
            wait_until_quiet(notes, watched, sample.quiet)
            found = notes.runs(watched)
            if not any(run.end for run in found):
                raise AdapterFailed(f"ran no job in {sample.quiet:.0f} s: {crew.tail()}")
    return {"jobs": work.count, "limit": LIMIT, **tally(work, found)}


def wait_until_quiet(notes: Notes, watched: range, quiet: float) -> None:
    """Until all have ended, or none more ends."""
    seen, end = 0, time.monotonic() + quiet
    while seen < len(watched) and time.monotonic() < end:
        time.sleep(LOOK)
        ended = notes.ended(watched)
        if ended != seen:
            seen, end = ended, time.monotonic() + quiet


MEASURES: dict[str, Callable[[Bench, Peer], Values]] = {
    "plain": functools.partial(rates, lanes=0),
    "one": functools.partial(rates, lanes=1),
    "full": functools.partial(rates, lanes=1, limit=BATCH),
    "thousand": functools.partial(rates, lanes=THOUSAND),
    "plain-large": functools.partial(rates, lanes=0, large=True),
    "each": functools.partial(rates, lanes=None, large=True),
    "fair-one": functools.partial(turns, fair=True),
    "fair-four": functools.partial(turns, fair=True, workers=4),
    "fifo": functools.partial(turns, fair=False),
    "limit": limit,
}
WORDS = {
    "plain": "no lanes",
    "one": "one lane",
    "full": "one full lane",
    "thousand": "1,000 lanes",
    "plain-large": "no lanes, many jobs",
    "each": "a lane for each of many jobs",
    "fair-one": "fair, one worker",
    "fair-four": "fair, four workers",
    "fifo": "first in, first out",
    "limit": "a limit for each customer",
}
