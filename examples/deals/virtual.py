"""An event loop on virtual time: when there is nothing to do, it jumps to the next timer instead of sleeping.

Sockets are real. While a call is on its way, time stands still, however long the machine takes; so a day passes in
seconds, and no call times out because of that. A call that waits *inside the API* for virtual time (its latency) does
not stop time, or it would wait for ever.

    calls on their way = calls that clients have begun - calls that sleep in the API

Everything runs in one thread: handlers are `async def`, the storage is in memory, and the workers' lease heartbeats are
tasks. The runtime's monotonic clock and random numbers are simulated as in `proof.simulation`, so the same seed gives
the same run.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

from proof.simulation.patches import SimHeartbeat, simulated
from proof.simulation.scheduler import START, Scheduler

from accoda.clock import Cancel

from .client import DealsClient
from .messages import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

STUCK = 20.0
"""Real seconds after which a call on its way counts as lost: an error of the simulation."""


class Traffic:
    """How many calls were begun, and how many of them sleep in the API."""

    def __init__(self) -> None:
        self.begun = 0
        self.asleep = 0
        self.most = 0
        """How many calls were under way at once."""

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
    """Polls the sockets; instead of sleeping, it advances time."""

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
        if timeout is None:  # no timer: only another thread can wake the loop
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
        # Plus half a microsecond, so that rounding does not make a timer one millisecond early.
        return self._start + int((self._loop.time() + 5e-7) * 1000)

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        return self._loop.call_at((moment - self._start) / 1000, wake).cancel


class ApiClock(LoopClock):
    """The clock of the API: a call that sleeps by it is not on its way."""

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        traffic, over = self._loop.traffic, False

        def end() -> None:
            nonlocal over
            if not over:
                over = True
                traffic.asleep -= 1

        def fire() -> None:
            end()
            wake()

        def cancel() -> None:
            end()
            timer()

        traffic.asleep += 1
        timer = super().call_at(moment, fire)
        return cancel


class CountedClient(DealsClient):
    """A client whose calls stop time while they are on their way."""

    def __init__(self, url: str, traffic: Traffic) -> None:
        super().__init__(url)
        self._traffic = traffic

    async def _exchange(self, target: str) -> Response:
        with self._traffic.call():
            return await super()._exchange(target)


class LoopHeartbeat(SimHeartbeat):
    """A worker's lease heartbeat as a task on the worker's own loop."""

    def start(self) -> None:
        if self._loop is None:
            self._loop = self._worker_loop
            self._task = self._loop.create_task(self._main())


class VirtualScheduler:
    """The time and random numbers of the simulation; `logged` are the errors that the runtime logs."""

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
    """`asyncio.run` on a virtual loop. An error that the runtime logs is raised here."""
    loop = VirtualLoop()
    scheduler = VirtualScheduler(loop, seed)
    with simulated(cast(Scheduler, scheduler), LoopHeartbeat), asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main(loop))
    if scheduler.logged:
        raise RuntimeError(f"{len(scheduler.logged)} errors were logged, the first: {scheduler.logged[0]}")
    return result
