"""What every adapter shares: its command line, the payload, and the count of the runs.

An adapter is a script with two functions. `fill(order)` puts the jobs in; `work(order, tally)` starts one worker, whose
handler does nothing but call `tally.ran()`. Each runs in a process of its own, so that the worker is only a worker:

    python drain_huey.py fill '{"url": "redis://…", "count": 1000, "options": {}}'
    python drain_huey.py work '{"url": "redis://…", "count": 1000, "options": {}}'

When the last job has run, one line of JSON goes to the standard output: `{"count": 800, "first": 4.25, "last": 4.75}`,
how many jobs ran between two moments by `time.perf_counter()`. The clock starts when a fifth of the jobs has run. By
then a worker that takes many jobs at once has as many in hand as it has at the end, so that in between as many were
acknowledged as were run. The worker need not stop by itself: whoever started it ends it then.

This file imports nothing but the standard library: it runs in the environments of all the peers.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PAYLOAD = {"user": 12345, "template": "welcome", "language": "en"}


@dataclass(frozen=True)
class Order:
    """What to do: where the jobs are, how many, and what this entry of the catalogue sets."""

    url: str
    count: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The file of an SQLite URL."""
        return self.url.removeprefix("sqlite:///")


class Tally:
    """Counts runs, from any thread of the process, and reports when the last one has happened."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._warm = max(1, count // 5)
        self._first = 0.0
        # `next` on it is one step of C under the interpreter's lock: threads need no lock of ours, which would cost
        # the peers that use threads more than the others.
        self._numbers = itertools.count(1)

    def ran(self) -> None:
        number = next(self._numbers)
        if number == self._warm:
            self._first = time.perf_counter()
        elif number == self._count:
            self._report(time.perf_counter())

    def _report(self, last: float) -> None:
        line = json.dumps({"count": self._count - self._warm, "first": self._first, "last": last})
        os.write(1, f"{line}\n".encode())  # some workers replace sys.stdout


def main(fill: Callable[[Order], None], work: Callable[[Order, Tally], None]) -> None:
    """Do what the command line says."""
    logging.disable(logging.INFO)  # a line for each job would be most of what is measured
    what, text = sys.argv[1:]
    order = Order(**json.loads(text))
    if what == "fill":
        fill(order)
    else:
        work(order, Tally(order.count))
