"""What a run is to be: the storage, how long, which faults, how much load."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proof.chaos.choice import chosen
from proof.chaos.fleet import PRODUCER, WORKER, Role
from proof.chaos.settings import LEASE

HOUR = 3600.0
MARGIN = 1.12
"""How much faster than needed the producers go, so that the jobs are there in time though the store is away a while."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`jobs`, `kills` and `server_kills` are what there must be at the least.

    If they are not reached in `seconds`, the run goes on, for at most `longest` times as long.
    """

    storage: str
    seconds: float = 300.0
    seed: int = 0
    jobs: int = 200_000
    kills: int = 100
    server_kills: int = 20
    longest: float = 1.6
    faults: frozenset[str] = chosen(None)
    lease: float = LEASE
    workers: int = 3
    producers: int = 2
    kill_every: float = 2.2
    mischief_every: float = 9.0
    server_every: float = 6.2
    drops: float = 0.0

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds * MARGIN

    def roles(self) -> Sequence[Role]:
        """The processes."""
        roles: list[Role] = []
        # SQLite has no clock but that of the process: there a wrong one would be the store's own.
        wrong = "clock" in self.faults and self.storage != "sqlite"
        for number in range(self.workers):
            off = (0.0, HOUR, -HOUR)[number % 3] if wrong else 0.0
            roles.append(Role(f"worker-{number}", WORKER, clock_off=off))
        roles += [Role(f"producer-{number}", PRODUCER, drops=self.drops) for number in range(self.producers)]
        return roles
