"""Who is hurt, when and how: drawn from the seed while the producers work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, get_args

from accoda.testing.simulation.process import Point, Process, Trap

if TYPE_CHECKING:
    from accoda.testing.simulation.city import City

_VERBS = ("take", "settle", "extend", "enqueue", "write", "wait", "waiters", "stats")
_POINTS: tuple[Point, ...] = get_args(Point)
LONGEST_STOP = 12.0
"""Seconds that a process is stopped at most: several leases, and more than the manager's word lasts."""


class Faults:
    """Does harm until all jobs are asked for, and for a few seconds more."""

    def __init__(self, city: City) -> None:
        self._city = city
        self._draws = city.stream("faults")
        acts = {"kill": self._kill, "trap": self._trap, "pause": self._pause, "block": self._block}
        self._acts = [act for name, act in acts.items() if name in city.mix.faults]
        if "outage" in city.mix.faults:
            self._acts.append(self._outage)

    async def run(self) -> None:
        city, draws = self._city, self._draws
        last = 10 + draws.random() * 10
        while city.jobs_left > 0 or last > 0:
            pause = draws.expovariate(1.0) * city.mix.every
            await asyncio.sleep(pause)
            if city.jobs_left <= 0:
                last -= pause
            if self._acts and city.processes:  # all may be dead for a moment
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
        city = self._city
        if not city.server.down:
            seconds = self._draws.expovariate(1.0) * 2.0
            city.world.tell(f"the store is away for {seconds:.3f} s")
            city.server.go_down()
            city.server.lane.post(city.world.now + seconds, city.server.come_back)
