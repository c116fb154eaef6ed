"""How urgent a shared job is: from who waits for it, how many they are, and by when. Pure; lower is sooner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Literal, get_args

from msgspec import Struct, field

from accoda.errors import InvalidInput

PREFETCH = 100.0
"""The score of a job for which nobody waits yet."""

URGENT = 20.0
"""The highest score of the band "urgent"."""

Band = Literal["urgent", "normal", "low", "prefetch"]
BANDS: tuple[Band, ...] = get_args(Band)

_MINUTE = 60_000


def _check(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value < 0:
        raise InvalidInput(field, f"must be a number >= 0, not {value!r}")


class Weights(Struct, frozen=True, kw_only=True):
    """What counts how much.

    `urgency`: points for each whole minute until the earliest waiter is due, `most_urgency` at most. `crowd`: what a
    job with nobody waiting would have, less `each` for every waiter. `tiers`: points of the best tier among them.
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
            raise InvalidInput("tiers", "must name one tier at least, with its points")
        for tier, points in self.tiers.items():
            _check(f"tiers[{tier!r}]", points)

    def tier(self, name: str) -> float:
        """The points of a tier."""
        try:
            return self.tiers[name]
        except (KeyError, TypeError):
            raise InvalidInput("tier", f"must be one of {', '.join(self.tiers)}, not {name!r}") from None

    def points(self, tier: str) -> float:
        """The same for a tier that was stored: one that is not known here (other weights, another release) is last."""
        return self.tiers.get(tier, max(self.tiers.values()))

    def wish(self, tier: str, due: int | None) -> Wish:
        """What a stored waiter wishes."""
        return Wish(self.points(tier), due)


SEED = Weights()
"""The weights that hold where none are given."""


class Wish(Struct, frozen=True, gc=False):
    """What the score needs to know of one waiter: the points of its tier, and when it is due (None: now)."""

    tier: float
    due: int | None = None


class Crowd(Struct, frozen=True, gc=False):
    """What the score needs to know of all waiters together."""

    count: int = 0
    tier: float = 0.0
    earliest: int = 0


def crowd_of(wishes: Iterable[Wish]) -> Crowd:
    """All waiters in three numbers. One that is due now is due at 0: earlier than all others, at any moment."""
    found = list(wishes)
    if not found:
        return Crowd()
    return Crowd(len(found), min(wish.tier for wish in found), min(wish.due or 0 for wish in found))


def score(crowd: Crowd, now: int, weights: Weights = SEED) -> float:
    """The rank of a job for which these wait, at the moment `now`.

    >>> score(crowd_of([Wish(0.0)] * 5), 0)
    10.0
    >>> score(Crowd(), 0)
    100.0
    """
    if not crowd.count:
        return PREFETCH
    minutes = max(0, crowd.earliest - now) // _MINUTE
    urgency = min(weights.most_urgency, minutes * weights.urgency)
    return urgency + max(0.0, weights.crowd - weights.each * crowd.count) + crowd.tier


def band(rank: float) -> Band:
    """The band that a rank is in.

    >>> [band(rank) for rank in (20, 20.5, 50, 51, 99.9, 100)]
    ['urgent', 'normal', 'normal', 'low', 'low', 'prefetch']
    """
    if rank <= URGENT:
        return "urgent"
    if rank <= 50:
        return "normal"
    return "low" if rank < PREFETCH else "prefetch"
