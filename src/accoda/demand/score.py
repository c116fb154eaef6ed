"""How urgent a shared job is: from its waiters' tiers, their number and earliest due time. Pure; lower is sooner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, isfinite
from typing import Literal, get_args

from msgspec import Struct, field

from accoda.errors import InvalidInput
from accoda.limits import MOMENT

PREFETCH = 100.0
"""The score of a job without waiters."""
URGENT = 20.0
"""The highest score of the band "urgent"."""

Band = Literal["urgent", "normal", "low", "prefetch"]
BANDS: tuple[Band, ...] = get_args(Band)

_MINUTE = 60_000


def _check(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value < 0:
        raise InvalidInput(field, f"must be a number >= 0, not {value!r}")


class Weights(Struct, frozen=True, kw_only=True):
    """The parameters of the score.

    `urgency`: points for each whole minute until the earliest waiter is due, `most_urgency` at most. `crowd`: points of
    a job without waiters, less `each` for every waiter. `tiers`: the points of each tier; the best among the waiters
    counts.
    """

    urgency: float = 1.0
    most_urgency: float = 30.0
    crowd: float = 20.0
    each: float = 2.0
    tiers: Mapping[str, float] = field(
        default_factory=lambda: {"business": 0.0, "pro": 3.0, "starter": 6.0, "free": 10.0}
    )

    def __post_init__(self) -> None:
        for name in ("urgency", "most_urgency", "crowd", "each"):
            _check(name, getattr(self, name))
        if not self.tiers:
            raise InvalidInput("tiers", "must name at least one tier and its points")
        for tier, points in self.tiers.items():
            _check(f"tiers[{tier!r}]", points)

    def check_tier(self, name: str) -> None:
        """Refuse a tier that is not declared."""
        if not isinstance(name, str) or name not in self.tiers:
            raise InvalidInput("tier", f"must be one of {', '.join(self.tiers)}, not {name!r}")

    def points(self, tier: str) -> float:
        """The points of a stored tier. One that is unknown here (other weights, another release) comes last."""
        return self.tiers.get(tier, max(self.tiers.values()))


DEFAULT_WEIGHTS = Weights()


class Crowd(Struct, frozen=True, gc=False):
    """All waiters of a job together: their number, the points of the best tier, and the earliest due moment."""

    count: int = 0
    tier: float = 0.0
    earliest: int = 0


def crowd_of(waiters: Iterable[tuple[float, int | None]]) -> Crowd:
    """The crowd of waiters, each given as its tier's points and its due moment (None: now, which is before all others).

    >>> crowd_of([(3.0, 60_000), (10.0, None)])
    Crowd(count=2, tier=3.0, earliest=0)
    """
    found = list(waiters)
    if not found:
        return Crowd()
    return Crowd(len(found), min(points for points, _ in found), min(due or 0 for _, due in found))


def score(crowd: Crowd, now: int, weights: Weights = DEFAULT_WEIGHTS) -> float:
    """The rank of a job with this crowd, at the moment `now`.

    >>> score(Crowd(5, 0.0, 0), 0), score(Crowd(), 0)
    (10.0, 100.0)
    """
    if not crowd.count:
        return PREFETCH
    minutes = max(0, crowd.earliest - now) // _MINUTE
    urgency = min(weights.most_urgency, minutes * weights.urgency)
    return urgency + max(0.0, weights.crowd - weights.each * crowd.count) + crowd.tier


def changes_at(crowd: Crowd, now: int, weights: Weights = DEFAULT_WEIGHTS) -> int:
    """The first moment after `now` at which time alone gives the crowd another score; `MOMENT`: never.

    >>> changes_at(Crowd(1, 0.0, 150_000), 0), changes_at(Crowd(1, 0.0, 31 * 60_000), 0)
    (30001, 60001)
    """
    minutes = max(0, crowd.earliest - now) // _MINUTE
    if not crowd.count or not minutes or not weights.urgency or not weights.most_urgency:
        return MOMENT
    # Beyond the most, nothing changes until the minutes that are left count for less than that.
    next_minutes = min(minutes, ceil(weights.most_urgency / weights.urgency)) - 1
    return crowd.earliest - (next_minutes + 1) * _MINUTE + 1


def band(rank: float) -> Band:
    """The band of a rank.

    >>> [band(rank) for rank in (20, 20.5, 50, 51, 99.9, 100)]
    ['urgent', 'normal', 'normal', 'low', 'low', 'prefetch']
    """
    if rank <= URGENT:
        return "urgent"
    if rank <= 50:
        return "normal"
    return "low" if rank < PREFETCH else "prefetch"
