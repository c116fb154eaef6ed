"""What every adapter shares: its command line, the payload, the count of the runs and the driving of its producer.

    python drain_huey.py fill    '{"url": "redis://…", "count": 1000, "options": {}}'
    python drain_huey.py work    '{"url": …, "measure": "drain", "shared": "/…/shared", "number": 0, "workers": 1}'
    python drain_huey.py enqueue '{"url": …, "count": 20000, "seconds": 1.0}'

An adapter is a script that calls `main(fill, work, producer)`. `fill(order)` makes an empty store ready (tables) and
puts `order.count` jobs in, which may be none. `work(order, tally)` runs one worker, whose handler does nothing but call
`tally.ran(payload)`; it waits for more when the store is empty, and the benchmark ends it. `producer(order)` has
`one(payload)` and, where the peer has such a thing, `many(payloads)` and `later(payload, seconds)`, and `close()`. If
`one` is a coroutine, all are, and there may be an `open()`.

Workers answer through a file that they share with the harness; `Tally` says what stands where. Producers are driven by
driving.py, which says how they answer.

Neither file imports anything but the standard library: it runs in the environments of all the peers.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAYLOAD = {"user": 12345, "template": "welcome", "language": "en"}

# The shared file: 8,192 cells of 8 bytes, then a float of 8 bytes for each job whose lateness is noted.
USED = 0  # cell: how many cells are in use, for Python's threads; changed under flock alone
FOREIGN = 1  # to 8: the counts of workers in other languages, by their number
ARRIVED = 9  # to 16: 1 as soon as the worker of that number is about to start, 2 when it runs its first job
THREAD = 17  # and up: the counts, one cell for each thread of each process
CELLS = 8192
TIMES = CELLS * 8  # offset of the floats
GATE = 60.0  # seconds that the first worker waits for the others to start
LONELY = 2.0  # and then to run a job: one that takes ahead may have left nothing for them


@dataclass(frozen=True)
class Order:
    """What to do: where the jobs are, how many, and what this entry of the catalogue sets."""

    url: str
    count: int
    options: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # producers stop after this long, if it is not 0, even when `count` is not reached
    measure: str = "drain"  # or latency, delayed, enqueue, callers, bulk: what all this is for
    shared: str = ""  # path of the shared file
    number: int = 0  # which of the workers this one is
    workers: int = 1  # how many there are

    @property
    def path(self) -> str:
        """The file of an SQLite URL."""
        return self.url.removeprefix("sqlite:///")


class Tally:
    """Notes runs in the shared file, from any thread of the worker and of the processes that it forks.

    `ran(payload)` is for the handler, with what the handler was given. No lock is needed for a run: a cell is written
    by one thread alone, and so is the float of a job. Two workers and two threads are the same to the harness, which
    adds the cells up.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        with Path(order.shared).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._cells = memoryview(self._map)[:TIMES].cast("Q")
        self._times = memoryview(self._map)[TIMES:].cast("d")
        self._local = threading.local()
        # A child of a fork would go on with its parent's cell, and each would undo the other's counts. In the child
        # this is the forking thread, so its are the values that go.
        os.register_at_fork(after_in_child=lambda: self._local.__dict__.clear())
        self._cells[ARRIVED + order.number] = 1
        self._open = False
        self._count = self._counter()
        self.ran = self._count if order.measure == "drain" else self._note

    def _counter(self) -> Callable[[dict[str, Any]], None]:
        """A closure, since it is called for each job of the fastest peers, and what it costs is measured as theirs."""
        local, cells, first = self._local, self._cells, self._first

        def ran(payload: dict[str, Any]) -> None:
            try:
                cell, numbers = local.here
            except AttributeError:
                cell, numbers = first()
            cells[cell] = next(numbers)

        return ran

    def ran_many(self, count: int) -> None:
        """The same for `count` jobs of a drain at once: for a bare engine, whose jobs have no handler."""
        cell, _ = getattr(self._local, "here", None) or self._first()
        self._cells[cell] = self._cells[cell] + count

    def _note(self, payload: dict[str, Any]) -> None:
        """How late it is, in seconds, at its own place; a second run of the same job changes nothing."""
        now = time.time()
        if "index" not in payload:  # to warm up
            self._count(payload)
            return
        index = payload["index"]
        if self._times[index] != self._times[index]:  # not a number: it has not run yet
            self._times[index] = now - (payload["sent"] if "sent" in payload else payload["due"])

    def _first(self) -> tuple[int, Iterator[int]]:
        """The first run of this thread: wait for the other workers, then take a cell."""
        self._cells[ARRIVED + self._order.number] = 2
        if not self._open:
            self._wait_for(1, GATE)
            self._wait_for(2, LONELY)
            self._open = True
        with Path(self._order.shared).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            used = self._cells[USED]
            self._cells[USED] = used + 1
        self._local.here = THREAD + used, itertools.count(1)
        return self._local.here  # type: ignore[no-any-return]

    def _wait_for(self, state: int, patience: float) -> None:
        """Two workers do not start at the same moment; without a gate the first would drain most of it alone."""
        end = time.monotonic() + patience
        others = slice(ARRIVED, ARRIVED + self._order.workers)
        while min(self._cells[others]) < state and time.monotonic() < end:
            time.sleep(0.001)


def main(
    fill: Callable[[Order], None], work: Callable[[Order, Tally], None], producer: Callable[[Order], Any] | None = None
) -> None:
    """Do what the command line says."""
    logging.disable(logging.INFO)  # a line for each job would be most of what is measured
    what, text = sys.argv[1:]
    order = Order(**json.loads(text))
    if what == "fill":
        fill(order)
    elif what == "work":
        work(order, Tally(order))
    else:
        from driving import drive  # a worker has no use for it

        drive(what, producer, order)
