"""Which process is hurt, when and how: drawn from the seed while the producers work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, get_args

from proof.simulation.process import Point, Process, Trap

if TYPE_CHECKING:
    from proof.simulation.cluster import Cluster

_VERBS = ("take", "settle", "extend", "enqueue", "write", "wait", "look", "stats")
_POINTS: tuple[Point, ...] = get_args(Point)
LONGEST_STOP = 12.0
"""Seconds that a process is stopped at most: several leases, and more than the manager's word lasts."""


class Faults:
    """Does harm until all jobs are asked for, and for a few seconds more."""

    def __init__(self, cluster: Cluster) -> None:
        self._city = cluster
        self._draws = cluster.stream("faults")
        acts = {"kill": self._kill, "trap": self._trap, "pause": self._pause, "block": self._block}
        self._acts = [act for name, act in acts.items() if name in cluster.mix.faults]
        if "outage" in cluster.mix.faults:
            self._acts.append(self._outage)

    async def run(self) -> None:
        cluster, draws = self._city, self._draws
        last = 10 + draws.random() * 10
        while cluster.jobs_left > 0 or last > 0:
            pause = draws.expovariate(1.0) * cluster.mix.every
            await asyncio.sleep(pause)
            if cluster.jobs_left <= 0:
                last -= pause
            if self._acts and cluster.processes:  # all may be dead for a moment
                draws.choice(self._acts)()

    def _victim(self) -> Process:
        return self._draws.choice(self._city.processes)

    def _kill(self) -> None:
        self._victim().kill()

    def _trap(self) -> None:
        draws = self._draws
        stop_for = draws.random() * LONGEST_STOP if draws.random() < 0.5 else None
        self._victim().trap = Trap(draws.choice(_VERBS), draws.choice(_POINTS), stop_for)

    def _pause(self) -> None:
        self._victim().stop(self._draws.random() * LONGEST_STOP)

    def _block(self) -> None:
        self._victim().stop(self._draws.random() * LONGEST_STOP, whole=False)

    def _outage(self) -> None:
        cluster = self._city
        if not cluster.server.down:
            seconds = self._draws.expovariate(1.0) * 2.0
            cluster.scheduler.tell(f"the store is away for {seconds:.3f} s")
            cluster.server.go_down()
            cluster.server.loop.post(cluster.scheduler.now + seconds, cluster.server.come_back)
