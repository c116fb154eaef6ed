"""What the adapters of this comparison share. Imports nothing but the standard library.

    python rates_accoda.py rates '{"url": "redis://…", "jobs": 20000, "lanes": 1000}'
    python turns_accoda.py turns '{"url": "redis://…", "jobs": 10000, "others": 50, "fair": true, "workers": 4}'

These put their jobs in, say `{"ready": true}`, wait for a line, work, and say what they found. The scripts
`limit_*.py` have the command line of `timed.py`: `fill`, then `work`, with the file in which jobs note themselves.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

CHUNK = 1000  # jobs in a call that enqueues many
CROWD = "crowd"  # the customer with many jobs


@dataclass(frozen=True)
class Order:
    """What to do."""

    url: str
    jobs: int
    lanes: int = 0  # the jobs are of so many lanes in turn; 0: of none, in a queue without rules
    limit: int = 0
    others: int = 0  # customers with one job each, behind all the others
    fair: bool = False
    workers: int = 1
    slots: int = 10
    length: float = 0.0  # seconds of a job, on average
    options: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # how long the harness waits

    @classmethod
    def read(cls) -> Order:
        """The second word of the command line; the first only says what the script is for."""
        logging.disable(logging.INFO)  # as in the other comparisons: no line for each job
        return cls(**json.loads(sys.argv[2]))

    def customers(self) -> list[str]:
        """Whose the jobs are, in the order in which they are enqueued."""
        return [CROWD] * self.jobs + [f"other-{number}" for number in range(self.others)]

    def lengths(self) -> Iterator[float]:
        """How many seconds each job takes that starts: half to one and a half times `length`.

        Were they equal, the slots of all workers would always become free together, and the starts that are counted
        would come in the order in which their event loop reads the answers, not in that of the queue.
        """
        numbers = random.Random(self.jobs)
        while True:
            yield self.length * numbers.uniform(0.5, 1.5)


class Starts:
    """The order in which jobs start, from any thread, until all the others have started."""

    def __init__(self, others: int) -> None:
        self._lock = threading.Lock()
        self._order: list[str] = []
        self._missing = others
        self.complete = threading.Event()

    def started(self, customer: str) -> None:
        with self._lock:
            self._order.append(customer)
            self._missing -= customer != CROWD
            if not self._missing:
                self.complete.set()

    def found(self) -> dict[str, int]:
        """At which start the first and the last of the others came."""
        with self._lock:
            places = [place for place, customer in enumerate(self._order, 1) if customer != CROWD]
        return {"first": places[0], "within": places[-1]}


def customer_of(index: int, slots: int, customers: int) -> str:
    """Whose the job is: the first `slots` warm up, each of a customer of its own; then the customers are in turn."""
    return f"warm-{index}" if index < slots else f"customer-{(index - slots) % customers}"


def say(what: dict[str, Any]) -> None:
    os.write(1, f"{json.dumps(what)}\n".encode())


def await_start() -> None:
    """The jobs are in; the harness says when to work."""
    say({"ready": True})
    sys.stdin.readline()
