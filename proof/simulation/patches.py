"""While a simulation runs, the modules of Accoda see its time and its random numbers instead of the machine's.

The names `time`, `random`, `secrets` in every loaded module of Accoda are replaced, nothing in the standard library:
other threads of this process, and the tests around it, keep theirs. A call that has no simulated twin is an error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from accoda.flows import coordinator
from accoda.runtime import worker
from accoda.runtime.batch import BatchRun
from accoda.runtime.lease_heartbeat import LeaseHeartbeat
from accoda.runtime.runners import loop as _loop  # noqa: F401 - loaded now, so that it is patched too
from proof.simulation.scheduler import EPOCH, START, Scheduler
from proof.simulation.sim_loop import SimLoop

_ERROR = logging.ERROR


class SimHeartbeat(LeaseHeartbeat):
    """The lease heartbeat on a loop of its own instead of a thread: the same code from `_main` on."""

    def __init__(self, batches: set[BatchRun], *args: Any) -> None:
        super().__init__(cast("set[BatchRun]", _InOrder(batches)), *args)

    def start(self) -> None:
        if self._loop is None:
            worker_loop = asyncio.get_running_loop()
            assert isinstance(worker_loop, SimLoop)
            self._loop = loop = worker_loop.owner.another_loop("heartbeat")
            loop.spawn(self._main())


class _InOrder:
    """A view of the worker's batches whose copy has the same order in every run: a set goes by addresses."""

    def __init__(self, batches: set[BatchRun]) -> None:
        self._batches = batches

    def copy(self) -> list[BatchRun]:
        return sorted(self._batches, key=lambda batch: (batch.taken[0].id, batch.taken[0].attempts))

    def __contains__(self, batch: BatchRun) -> bool:
        return batch in self._batches

    def __len__(self) -> int:
        return len(self._batches)


@contextmanager
def simulated(scheduler: Scheduler, heartbeat: type[SimHeartbeat] = SimHeartbeat) -> Iterator[None]:
    """Run Accoda in virtual time."""
    twins = _twins(scheduler)
    changed: list[tuple[Any, str, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith("accoda.") and not name.startswith("accoda.testing."):
            for attribute, (real, twin) in twins.items():
                if vars(module).get(attribute) is real:
                    changed.append((module, attribute, real))
                    setattr(module, attribute, twin)
    marks = SimpleNamespace(urandom=scheduler.stream("marks").randbytes)
    for module, attribute, twin in (
        (worker, "LeaseHeartbeat", heartbeat),
        (worker, "socket", _HOST),
        (worker, "os", _HOST),
        (coordinator, "os", marks),
    ):
        changed.append((module, attribute, getattr(module, attribute)))
        setattr(module, attribute, twin)
    with _listening(scheduler):
        try:
            yield
        finally:
            for module, attribute, real in changed:
                setattr(module, attribute, real)


def _twins(scheduler: Scheduler) -> dict[str, tuple[Any, Any]]:
    draws = scheduler.stream("runtime")

    def token_hex(size: int = 32) -> str:
        return draws.randbytes(size).hex()

    clock = SimpleNamespace(
        monotonic=lambda: scheduler.now,
        monotonic_ns=lambda: int(scheduler.now * 1e9),
        perf_counter=lambda: scheduler.now,
        time=lambda: scheduler.now - START + EPOCH / 1000,
        time_ns=lambda: int((scheduler.now - START) * 1e9) + EPOCH * 1_000_000,
    )
    return {
        "time": (time, clock),
        "random": (random, draws),
        "secrets": (secrets, SimpleNamespace(token_hex=token_hex)),
    }


_HOST = SimpleNamespace(gethostname=lambda: "simulated", getpid=lambda: 1, environ=os.environ)


@contextmanager
def _listening(scheduler: Scheduler) -> Iterator[None]:
    """What the runtime logs as an error is a finding; warnings come with the faults."""
    logger = logging.getLogger("accoda")
    handler = _Listener(scheduler.logged.append)
    before = logger.level, logger.propagate, logger.handlers[:]
    logger.setLevel(_ERROR)
    logger.propagate, logger.handlers = False, [handler]
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate, logger.handlers = before[1], before[2]


class _Listener(logging.Handler):
    def __init__(self, found: Callable[[str], None]) -> None:
        super().__init__(_ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        error = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._found(f"logged by {record.name}: {record.getMessage()}{error}")
