"""What a run is made of. A plan gives the size; the seed draws the rest, another mix for each seed.

Every seed leaves some faults out and makes others frequent: a run with everything at once hides what only one fault,
often, would show.
"""

from __future__ import annotations

from random import Random

from msgspec import Struct

FAULTS = ("kill", "trap", "pause", "block", "lost", "slow", "outage", "skew", "poison", "admin")
"""kill -9 at any moment · kill or stop at a chosen call · SIGSTOP · a handler that blocks its loop · lost requests and
answers · slow calls · the store away for a while · worker clocks off by up to an hour · jobs that kill their worker ·
an administrator that pauses, resumes, removes, revives, starts early, purges and reranks."""


class Plan(Struct, frozen=True, kw_only=True):
    """`jobs` is how many the producers enqueue; follow-ups come on top. `faults` are those that a seed may draw.

    `broken` names a promise that is broken on purpose: see `breaks.py`.
    """

    jobs: int = 6_000
    workers: int = 4
    faults: tuple[str, ...] = FAULTS
    broken: str = ""
    drain_within: float = 300.0
    """Virtual seconds within which all work must be over once the faults have stopped."""


class Network(Struct):
    """What the network does: seconds that a message takes, and how likely a call meets trouble."""

    latency: float = 0.001
    longest: float = 1.0
    """Seconds: the worst that a slow call is late."""
    lost_request: float = 0.0
    lost_answer: float = 0.0
    slow: float = 0.0

    @property
    def trouble(self) -> float:
        """How likely any of it is."""
        return self.lost_request + self.lost_answer + self.slow


class Mix(Struct, frozen=True):
    """What a seed drew: which faults, how often (seconds between two), and how the handlers behave."""

    faults: tuple[str, ...]
    every: float
    """Seconds between two faults, on average."""
    network: Network
    trouble: float
    """The share of the jobs that do not just succeed."""
    keyed: float
    """The share of the enqueues that have a key."""
    span: float
    """Virtual seconds over which the jobs are enqueued."""

    @property
    def fair(self) -> bool:
        """Whether nothing happens that could end a lease: then none may end."""
        return not set(self.faults) - {"skew", "admin"}


def draw(plan: Plan, random: Random) -> Mix:
    """The mix of one seed."""
    share = random.choice((0.0, 0.3, 0.6, 0.6, 0.8))
    chosen = [fault for fault in plan.faults if random.random() < share]
    network = Network(latency=random.choice((0.0002, 0.001, 0.01)), longest=random.choice((0.5, 3.0, 8.0)))
    if "lost" in chosen:
        network.lost_request = random.choice((0.002, 0.02, 0.1))
        network.lost_answer = random.choice((0.002, 0.02, 0.1))
    if "slow" in chosen:
        network.slow = random.choice((0.005, 0.03))
    return Mix(
        faults=tuple(chosen),
        every=random.choice((0.7, 2.0, 5.0)),
        network=network,
        trouble=random.choice((0.02, 0.1, 0.3)),
        keyed=random.choice((0.0, 0.1, 0.5)),
        span=random.choice((10.0, 30.0, 60.0)),
    )
