"""Django's tasks with Accoda's backend and with `django-tasks-db`, each in a process of its own, in turns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from benchmarks.peers.environments import clean_environment, python_of

PEER = "django_tasks_db"
SCRIPT = Path(__file__).parent / "adapters" / "django_enqueue.py"
MEASURES = ("task", "order", "both")
COUNT = 10
WARM = 3


class Backend(Struct, frozen=True):
    """A backend of Django's tasks with its settings."""

    name: str
    storage: str
    adapter: str
    tasks: dict[str, Any]
    apps: list[str]


class DjangoRate(Struct, frozen=True):
    """A second: tasks outside of a transaction, and transactions with an order, and with an order and a task."""

    name: str
    storage: str
    tasks: float
    orders: float
    both: float

    @property
    def added(self) -> float:
        """Microseconds that the task adds to the transaction."""
        return (1 / self.both - 1 / self.orders) * 1e6


def accoda(storage: str, options: dict[str, Any]) -> Backend:
    return Backend(
        "accoda", storage, "", {"BACKEND": "accoda.django.AccodaBackend", "OPTIONS": options}, ["accoda.django"]
    )


def peer(storage: str) -> Backend:
    return Backend(
        "django-tasks-db", storage, PEER, {"BACKEND": "django_tasks_db.DatabaseBackend"}, ["django_tasks_db"]
    )


class Runner:
    """A process that enqueues."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"{SCRIPT.name} ended; what it wrote is above")
        return answer


@contextmanager
def running(backend: Backend, database: dict[str, Any]) -> Iterator[Runner]:
    with subprocess.Popen(
        [python_of(backend.adapter), str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=clean_environment(backend.adapter),
    ) as process:  # fmt: skip
        try:
            runner = Runner(process)
            order = {"database": database, "tasks": backend.tasks, "apps": backend.apps}
            assert runner.ask(json.dumps(order)) == "ready"
            yield runner
        finally:
            process.kill()


def measure(pair: list[tuple[Backend, Runner]], rounds: int, tell: Callable[[str], None]) -> list[DjangoRate]:
    """Round after round, each measure of each backend once in each."""
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + WARM):
        for what in MEASURES:
            for backend, runner in pair:
                seconds = float(runner.ask(f"{what} {COUNT}")) / COUNT
                if number >= WARM:
                    times.setdefault((backend.name, what), []).append(seconds)
        tell(f"Django on {pair[0][0].storage}: round {max(0, number - WARM + 1)} of {rounds}")
    return [
        DjangoRate(backend.name, backend.storage, *(1 / median(times[backend.name, what]) for what in MEASURES))
        for backend, _ in pair
    ]


def versions_here() -> dict[str, str]:
    from importlib.metadata import version

    return {"django": version("django"), "python": sys.version.split()[0]}
