"""What is said of a demand, and what it answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypedDict

from msgspec import Struct

from accoda.demand.counters import Counts
from accoda.demand.prefetch import Prefetch
from accoda.demand.score import Weights
from accoda.demand.standing import QueueMetrics
from accoda.enqueue import Cost

What = Literal["cached", "stale", "attached", "created"]
Left = Literal["left", "cancelled", "absent"]


class Answer(Struct, frozen=True):
    """What became of a request. `id` is the job that serves it: the delivery of a result that is there, else the fetch.

    `waiters` is how many entries the fetch job has, those who left included; `fetched_at` is that of a result that is
    there.
    """

    what: What
    id: int
    waiters: int = 0
    fetched_at: int | None = None


class DemandView(Struct, frozen=True):
    """A demand in numbers: its waiting jobs as the last upkeep found them, and what was counted since its first use."""

    queue: str
    waiting: QueueMetrics
    counts: Counts


class DemandOptions(TypedDict, total=False):
    """What may be said of a demand.

    `fresh_for`: how long a result is as good as new; `keep_for`: how long it is given, as stale, while a new one is
    fetched (never less than `fresh_for`). `cost` (a number, or a function of the key) is taken from `budget`, one name
    or several. `weights` make the score, `prefetch` fetches ahead when nothing else is to do. Every `upkeep` seconds
    the ranks that time has made wrong are put right.
    """

    fresh_for: float | timedelta
    keep_for: float | timedelta | None
    cost: Cost
    budget: str | tuple[str, ...] | None
    weights: Weights
    prefetch: Prefetch | None
    upkeep: float | timedelta
