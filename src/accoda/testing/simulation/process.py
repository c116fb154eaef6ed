"""A simulated process: lanes that live, stop and die together, its connections, and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from accoda.app import App
from accoda.runtime.worker import Worker
from accoda.testing.history import Recorder
from accoda.testing.simulation.client import SimConnections, SimStore
from accoda.testing.simulation.lane import Lane
from accoda.testing.simulation.world import SimClock

if TYPE_CHECKING:
    from accoda.testing.simulation.city import City

Point = Literal["before", "sent", "answered"]


class Trap(Struct, frozen=True):
    """What befalls a process at its next call of a verb: before it is sent, while it travels, or at its answer.

    `stop_for` seconds without a sign of life; None: it is killed.
    """

    verb: str
    point: Point
    stop_for: float | None = None


class Process:
    """One process. `main` is what it runs; when that ends or fails, the process is over."""

    def __init__(self, city: City, name: str, number: int, skew: float) -> None:
        self.city = city
        self.name = name
        self.number = number
        self.lanes: list[Lane] = []
        self.lane = self.another_lane("main")
        self.stores: list[SimStore] = []
        self.trap: Trap | None = None
        self.dead = False
        self.ended = False
        self.clock = SimClock(city.world, None, skew)
        self.recorder = Recorder(name, city.sink, city.now_ns)
        self.app = App("memory://simulated")
        self.app.connections = SimConnections(city.server, self, self.clock)
        self.worker: Worker | None = None
        """Its worker, once it is ready to run."""
        self._leaving = False

    def another_lane(self, name: str) -> Lane:
        """A thread of this process."""
        lane = self.city.world.lane(f"{self.name}/{name}")
        lane.owner = self
        self.lanes.append(lane)
        return lane

    def start(self, main: Coroutine[Any, Any, None], over: Callable[[Process], None]) -> None:
        self._over = over
        self.lane.spawn(self._run(main))

    async def _run(self, main: Coroutine[Any, Any, None]) -> None:
        try:
            await main
        except Exception as error:
            self.city.world.tell(f"{self.name} ended with {error!r}")
            self.city.crashed(self, error)
        finally:
            if not self.city.world.over:
                self.ended = True
                self._over(self)

    def leave(self) -> None:
        """SIGTERM. One that is not yet ready to run is told by the next call."""
        if self.worker is not None and not self._leaving:
            self._leaving = True
            self.lane.spawn(self.worker.graceful_stop(5.0))

    # -- what befalls it

    def kill(self) -> None:
        """kill -9: none of its steps ever runs again, and its connections are gone."""
        if self.dead or self.ended:
            return
        self.dead = True
        self.recorder.note("kill")
        self.city.world.tell(f"{self.name} is killed")
        self.city.kills += 1
        for lane in self.lanes:
            lane.die()
        for store in self.stores:
            store.closed = True
            self.city.server.drop_store(store)
        self._over(self)

    def stop(self, seconds: float, *, whole: bool = True) -> None:
        """SIGSTOP for a while; not `whole`: only its main thread, as a handler does that blocks the loop."""
        if self.dead or self.ended:
            return
        self.city.pauses += 1
        self.city.world.tell(f"{self.name} stops for {seconds:.3f} s{'' if whole else ' (its main thread only)'}")
        lanes = self.lanes[:] if whole else [self.lane]
        for lane in lanes:
            lane.stop()
        self.city.server.lane.post(self.city.world.now + seconds, _go_on, lanes)

    def sprung(self, verb: str, point: Point) -> bool:
        """Whether the trap is for this moment; then it is sprung."""
        trap = self.trap
        if trap is None or trap.verb != verb or trap.point != point:
            return False
        self.trap = None
        if trap.stop_for is None:
            self.kill()
        else:
            self.stop(trap.stop_for)
        return True

    def answered(self, verb: str, value: object) -> None:
        """An answer is there, and not yet read. One of a take that found nothing springs no trap."""
        if self.trap is not None and (value or verb != "take"):
            self.sprung(verb, "answered")

    async def freeze(self) -> None:
        """Let nothing more of the running task happen before the process goes on; if it is dead, never."""
        await asyncio.sleep(0)


def _go_on(lanes: list[Lane]) -> None:
    for lane in lanes:
        lane.go_on()
