"""A simulated process: loops that live, stop and die together, its connections, and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from accoda.app import App
from accoda.runtime.worker import Worker
from proof.checker import Recorder
from proof.simulation.client import SimConnections, SimStore
from proof.simulation.scheduler import SimClock
from proof.simulation.sim_loop import SimLoop

if TYPE_CHECKING:
    from proof.simulation.cluster import Cluster

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

    def __init__(self, cluster: Cluster, name: str, number: int, skew: float) -> None:
        self.cluster = cluster
        self.name = name
        self.number = number
        self.loops: list[SimLoop] = []
        self.loop = self.another_loop("main")
        self.stores: list[SimStore] = []
        self.trap: Trap | None = None
        self.dead = False
        self.ended = False
        self.clock = SimClock(cluster.scheduler, None, skew)
        self.recorder = Recorder(name, cluster.sink, cluster.now_ns)
        self.app = App("memory://simulated")
        self.app.connections = SimConnections(cluster.server, self, self.clock)
        self.worker: Worker | None = None
        """Its worker, once it is ready to run."""
        self._leaving = False

    def another_loop(self, name: str) -> SimLoop:
        """A thread of this process."""
        loop = self.cluster.scheduler.loop(f"{self.name}/{name}")
        loop.owner = self
        self.loops.append(loop)
        return loop

    def start(self, main: Coroutine[Any, Any, None], over: Callable[[Process], None]) -> None:
        self._over = over
        self.loop.spawn(self._run(main))

    async def _run(self, main: Coroutine[Any, Any, None]) -> None:
        try:
            await main
        except Exception as error:
            self.cluster.scheduler.tell(f"{self.name} ended with {error!r}")
            self.cluster.crashed(self, error)
        finally:
            if not self.cluster.scheduler.over:
                self.ended = True
                self._over(self)

    def leave(self) -> None:
        """SIGTERM. One that is not yet ready to run is told by the next call."""
        if self.worker is not None and not self._leaving:
            self._leaving = True
            self.loop.spawn(self.worker.graceful_stop(5.0))

    # -- what befalls it

    def kill(self) -> None:
        """kill -9: none of its steps ever runs again, and its connections are gone."""
        if self.dead or self.ended:
            return
        self.dead = True
        self.recorder.note("kill")
        self.cluster.scheduler.tell(f"{self.name} is killed")
        self.cluster.kills += 1
        for loop in self.loops:
            loop.die()
        for store in self.stores:
            store.closed = True
            self.cluster.server.drop_store(store)
        self._over(self)

    def stop(self, seconds: float, *, whole: bool = True) -> None:
        """SIGSTOP for a while; not `whole`: only its main thread, as a handler does that blocks the loop."""
        if self.dead or self.ended:
            return
        self.cluster.pauses += 1
        self.cluster.scheduler.tell(
            f"{self.name} stops for {seconds:.3f} s{'' if whole else ' (its main thread only)'}"
        )
        loops = self.loops[:] if whole else [self.loop]
        for loop in loops:
            loop.stop()
        self.cluster.server.loop.post(self.cluster.scheduler.now + seconds, _go_on, loops)

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


def _go_on(loops: list[SimLoop]) -> None:
    for loop in loops:
        loop.go_on()
