"""How much is measured: in full, quickly, or as little as a test needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

PARTS = ("many", "queues", "delayed", "waiters", "workers", "cluster", "costs")
STORAGES = ("sqlite", "redis", "postgres")
EXPECTED: Mapping[str, float] = {
    "many": 600, "queues": 100, "delayed": 330, "waiters": 40, "workers": 200, "cluster": 70, "costs": 70,
}  # fmt: skip
"""Seconds of each part in full, on two quiet cores."""


def _drains() -> dict[str, float]:
    return {"sqlite": 100_000, "redis": 150_000, "postgres": 60_000}


@dataclass(frozen=True)
class Sizes:
    """`few` waiting beside `jobs` waiting; `window` seconds in which the delayed ones come due, `beforehand` seconds
    between the end of their load and the first moment; `settle_seconds` that an idle worker has to come to rest."""

    jobs: int = 10_000_000
    few: int = 1000
    rounds: int = 9
    seconds: float = 0.5
    looks: int = 20
    queues: int = 1000
    per_queue: int = 50
    idle_seconds: float = 8.0
    settle_seconds: float = 2.0
    latencies: int = 50
    delayed: int = 1_000_000
    window: float = 60.0
    beforehand: float = 3.0
    waiters: int = 10_000
    keys: int = 1000
    processes: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    drain_rounds: int = 2
    drains: Mapping[str, float] = field(default_factory=_drains)
    masters: tuple[int, ...] = (1, 2, 3)
    cluster_jobs: int = 120_000
    batches: tuple[int, ...] = (1, 10, 100, 1000)


def quick(jobs: int | None = None) -> Sizes:
    """A hundredth of the jobs, short samples: to see that all works, not to be published."""
    return Sizes(
        jobs=jobs or 100_000, rounds=3, seconds=0.1, per_queue=5, idle_seconds=2.0, latencies=10, delayed=20_000,
        window=10.0, waiters=1000, keys=100, processes=(1, 2, 4), drain_rounds=1,
        drains={name: count / 10 for name, count in _drains().items()}, cluster_jobs=12_000,
    )  # fmt: skip


def full(jobs: int | None = None) -> Sizes:
    return replace(Sizes(), jobs=jobs) if jobs else Sizes()
