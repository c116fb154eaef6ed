"""While a simulation runs, the modules of Accoda see its time and its random numbers instead of the machine's.

The names `time`, `random`, `secrets` in every loaded module of Accoda are replaced, nothing in the standard library:
other threads of this process, and the tests around it, keep theirs. A call that has no simulated twin is an error.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from accoda.runtime import worker
from accoda.runtime.keeper import Keeper
from accoda.runtime.runners import loop as _loop  # noqa: F401 - loaded now, so that it is patched too
from accoda.testing.simulation.lane import Lane
from accoda.testing.simulation.server import Ordered
from accoda.testing.simulation.world import EPOCH, START, World

_ERROR = logging.ERROR


class SimKeeper(Keeper):
    """The keeper on a lane of its own instead of a thread: the same code from `_main` on."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._held: Any = Ordered()  # a set would give them in the order of their addresses

    def start(self) -> None:
        if self._loop is None:
            assert isinstance(self._worker_loop, Lane)
            lane = self._worker_loop.owner.another_lane("keeper")
            self._loop = lane
            lane.spawn(self._main())

    def close(self) -> None:
        self._closing = True
        self._ring()


@contextmanager
def simulated(world: World, keeper: type[SimKeeper] = SimKeeper) -> Iterator[None]:
    """Run Accoda in this world."""
    twins = _twins(world)
    changed: list[tuple[Any, str, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith("accoda.") and not name.startswith("accoda.testing."):
            for attribute, (real, twin) in twins.items():
                if vars(module).get(attribute) is real:
                    changed.append((module, attribute, real))
                    setattr(module, attribute, twin)
    for attribute, twin in (("Keeper", keeper), ("socket", _HOST), ("os", _HOST)):
        changed.append((worker, attribute, getattr(worker, attribute)))
        setattr(worker, attribute, twin)
    with _listening(world):
        try:
            yield
        finally:
            for module, attribute, real in changed:
                setattr(module, attribute, real)


def _twins(world: World) -> dict[str, tuple[Any, Any]]:
    draws = world.stream("runtime")

    def token_hex(size: int = 32) -> str:
        return draws.randbytes(size).hex()

    clock = SimpleNamespace(
        monotonic=lambda: world.now,
        monotonic_ns=lambda: int(world.now * 1e9),
        perf_counter=lambda: world.now,
        time=lambda: world.now - START + EPOCH / 1000,
        time_ns=lambda: int((world.now - START) * 1e9) + EPOCH * 1_000_000,
    )
    return {
        "time": (time, clock),
        "random": (random, draws),
        "secrets": (secrets, SimpleNamespace(token_hex=token_hex)),
    }


_HOST = SimpleNamespace(gethostname=lambda: "simulated", getpid=lambda: 1, environ=os.environ)


@contextmanager
def _listening(world: World) -> Iterator[None]:
    """What the runtime logs as an error is a finding; what it warns of is the weather."""
    logger = logging.getLogger("accoda")
    handler = _Listener(world.logged.append)
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
