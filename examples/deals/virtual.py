"""An event loop on virtual time: when nobody has anything to do, it jumps to the next timer instead of sleeping.

Sockets are real. While a call is on its way through one, time stands still, however long the machine takes for it; so a
day passes in seconds, and nobody times out on account of that. What waits *inside the API* for virtual time (its
latency) does not hold time up, or it would wait for ever.

    calls on their way = calls that clients have begun - calls that sleep in the API

One thread: handlers are `async def`, the storage is the one in memory, and the workers' keepers, which have threads
elsewhere, are tasks here. The runtime's steady clock and its random numbers are the simulation's, too, as in
`accoda.testing.simulation`; so the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

from accoda.clock import Cancel
from accoda.testing.simulation.patches import SimKeeper, simulated
from accoda.testing.simulation.world import START, World

from .client import DealsClient
from .messages import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

STUCK = 20.0
"""Real seconds after which a call that is on its way is taken for lost: an error of the simulation."""


class Traffic:
    """How many calls were begun, and how many of them sleep in the API."""

    def __init__(self) -> None:
        self.begun = 0
        self.asleep = 0
        self.most = 0
        """So many calls were under way at once."""

    @property
    def moving(self) -> bool:
        return self.begun > self.asleep

    @contextmanager
    def call(self) -> Iterator[None]:
        self.begun += 1
        self.most = max(self.most, self.begun)
        try:
            yield
        finally:
            self.begun -= 1


class _Selector(selectors.DefaultSelector):
    """Looks at the sockets; where it would sleep, it moves time instead."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self.now = 0.0
        self._traffic = traffic

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if found or timeout == 0:
            return found
        if self._traffic.moving:
            found = super().select(STUCK)
            if not found:
                raise RuntimeError(f"a call has been on its way for {STUCK:g} s: the simulation is stuck")
            return found
        if timeout is None:  # no timer at all: only another thread can go on
            return super().select(None)
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`asyncio.sleep(3600)` takes no time on it."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._jumping = _Selector(self.traffic)
        super().__init__(self._jumping)

    def time(self) -> float:
        return float(self._jumping.now)


class LoopClock:
    """A `Clock` that shows a virtual loop's time, from the moment `start` on."""

    def __init__(self, loop: VirtualLoop, start: int) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> int:
        # Half a microsecond more: a timer for a moment must not find it a millisecond short by rounding.
        return self._start + int((self._loop.time() + 5e-7) * 1000)

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        return self._loop.call_at((moment - self._start) / 1000, wake).cancel


class ApiClock(LoopClock):
    """The clock of the API: what sleeps by it is no call on its way."""

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        traffic, over = self._loop.traffic, False

        def end() -> None:
            nonlocal over
            if not over:
                over = True
                traffic.asleep -= 1

        def ring() -> None:
            end()
            wake()

        def cancel() -> None:
            end()
            timer()

        traffic.asleep += 1
        timer = super().call_at(moment, ring)
        return cancel


class CountedClient(DealsClient):
    """A client whose calls hold up time while they are on their way."""

    def __init__(self, url: str, traffic: Traffic) -> None:
        super().__init__(url)
        self._traffic = traffic

    async def _exchange(self, target: str) -> Response:
        with self._traffic.call():
            return await super()._exchange(target)


class LoopKeeper(SimKeeper):
    """A worker's keeper as a task on the worker's own loop."""

    def start(self) -> None:
        if self._loop is None:
            self._loop = self._worker_loop
            self._task = self._loop.create_task(self._main())


class Surroundings:
    """What the runtime sees of the world while it is simulated; `logged` are the errors that it logs."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._loop = loop
        self._seed = seed
        self.logged: list[str] = []

    @property
    def now(self) -> float:
        return START + self._loop.time()

    def stream(self, name: str) -> Random:
        return Random(f"{self._seed}/{name}")


def run_virtually(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]], seed: int = 0) -> T:
    """`asyncio.run` on a loop of its own whose time is virtual. What the runtime logs as an error is one here."""
    loop = VirtualLoop()
    world = Surroundings(loop, seed)
    with simulated(cast(World, world), LoopKeeper), asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main(loop))
    if world.logged:
        raise RuntimeError(f"{len(world.logged)} errors were logged, the first: {world.logged[0]}")
    return result
