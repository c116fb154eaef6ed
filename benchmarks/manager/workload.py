"""Jobs that arrive by chance: a steady stream for each queue, and bursts now and then. The same seed, the same jobs."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """One queue: jobs a second, seconds that a job takes on average, jobs taken at once, jobs enqueued at once.

    `burst` jobs arrive together besides, every `burst_every` seconds on average.
    """

    queue: str
    rate: float
    service: float
    batch: int
    group: int
    burst: int
    burst_every: float

    @property
    def processors(self) -> float:
        """How many processors it keeps busy on average."""
        return self.service * (self.rate + self.burst / self.burst_every)


@dataclass(frozen=True)
class Arrived:
    """The jobs of one queue, in order: when each comes, and how long it takes."""

    moments: list[float]
    lengths: list[float]


@dataclass(frozen=True)
class Scenario:
    """What arrives, and what there is to serve it."""

    name: str
    loads: tuple[Load, ...]
    workers: int = 2
    processors: int = 4

    @property
    def utilisation(self) -> float:
        return sum(load.processors for load in self.loads) / (self.workers * self.processors)


def arrive(load: Load, seconds: float, seed: int) -> Arrived:
    """Exponential pauses between groups and between bursts; exponential lengths."""
    chance = random.Random(f"{seed}/{load.queue}")
    moments: list[float] = []
    moment = 0.0
    while (moment := moment + chance.expovariate(load.rate / load.group)) < seconds:
        moments.extend([moment] * load.group)
    moment = 0.0
    while (moment := moment + chance.expovariate(1 / load.burst_every)) < seconds:
        moments.extend([moment] * load.burst)
    moments.sort()
    return Arrived(moments, [chance.expovariate(1 / load.service) for _ in moments])


def mix(name: str, scale: float, bursts: tuple[int, int, int], slow_batch: int = 2) -> Scenario:
    """Three queues that have little in common: a flood of short jobs, a stream of middling ones, a trickle of long."""
    flood, medium, slow = bursts
    return Scenario(
        name,
        (
            Load("flood", 200 * scale, 0.005, batch=50, group=20, burst=flood, burst_every=60.0),
            Load("medium", 5 * scale, 0.2, batch=10, group=1, burst=medium, burst_every=60.0),
            Load("slow", 0.5 * scale, 4.0, batch=slow_batch, group=1, burst=slow, burst_every=120.0),
        ),
    )


BUSY = mix("busy: bursts everywhere", 1.0, (8000, 200, 30))
SCENARIOS = (
    mix("low load", 0.4, (800, 20, 8)),
    mix("half load, small bursts", 1.0, (2000, 50, 20)),
    BUSY,
    mix("big bursts of long jobs", 1.0, (2000, 50, 60)),
    mix("the same, long jobs by 10", 1.0, (2000, 50, 60), slow_batch=10),
)
