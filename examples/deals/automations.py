"""Automations: what the service's users want posted: which category, how often, and which deals.

Automation ──every `every` minutes, in its hours──► a request for its category ──deals──► matches(deal, filters)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Literal, get_args

from msgspec import Struct

from .catalogue import CATEGORIES, Deal

Tier = Literal["business", "pro", "starter", "free"]
TIERS: tuple[Tier, ...] = get_args(Tier)

MINUTE = 60_000
EVERY: dict[Tier, tuple[int, ...]] = {"business": (15,), "pro": (15, 30), "starter": (30, 60), "free": (60, 120)}
"""Minutes between two runs that a plan lets its users choose from."""
PATIENCE: dict[Tier, int] = {"business": 2, "pro": 5, "starter": 10, "free": 30}
"""Minutes in which a plan promises the post, from the moment at which the automation runs."""
_SHARES: dict[Tier, float] = {"business": 0.15, "pro": 0.25, "starter": 0.30, "free": 0.30}
_HOURS = ((0, 24), (7, 23), (8, 20), (17, 23))
"""When people have their automations run: always, while awake, during the day, in the evening."""
_DISLIKED = ("used", "refurbished", "novel", "kite", "planter")


class Filters(Struct, frozen=True, rename="camel"):
    """Which deals of a category are wanted. None, or no words: any. The price is in whole euros.

    Stored, and in JSON, they are minDiscount, maxPrice, minRating, minReviews and excludeKeywords.
    """

    min_discount: int | None = None
    max_price: int | None = None
    min_rating: float | None = None
    min_reviews: int | None = None
    exclude_keywords: tuple[str, ...] = ()


class Wish(Struct, frozen=True, rename="camel"):
    """What a request for an automation carries beside its id, its plan and its moment."""

    user_id: str
    filters: Filters


class Automation(Struct, frozen=True):
    """One wish of one user: run every `every` minutes at minute `offset`, from the hour `begins` to the hour `ends`."""

    id: str
    tier: Tier
    category: str
    every: int
    offset: int
    begins: int
    ends: int
    filters: Filters
    user_id: str = ""


def matches(deal: Deal, filters: Filters) -> bool:
    """Whether a deal is wanted. Words are excluded whole, in any case.

    >>> deal = Deal("B1", "Norda kettle (USED)", "kitchen", 1900, 3800, 50, 4.5, 210)
    >>> matches(deal, Filters(min_discount=50, max_price=19)), matches(deal, Filters(exclude_keywords=("used",)))
    (True, False)
    """
    if filters.min_discount is not None and deal.discount < filters.min_discount:
        return False
    if filters.max_price is not None and deal.price > filters.max_price * 100:
        return False
    if filters.min_rating is not None and deal.rating < filters.min_rating:
        return False
    if filters.min_reviews is not None and deal.reviews < filters.min_reviews:
        return False
    words = "".join(letter if letter.isalnum() else " " for letter in deal.title.lower()).split()
    return not any(word.lower() in words for word in filters.exclude_keywords)


def population(count: int, seed: int = 0) -> list[Automation]:
    """That many automations, the same for the same seed.

    The n-th category has a weight of 1/n, so a quarter to a third of all want the first. Two in three run on the clock
    face (:00, :15, :30), because that is what people type; the others at a minute of their own.
    """
    draws = Random(f"automations/{seed}")
    return [_automation(number, draws) for number in range(count)]


def runs(automations: Iterable[Automation], begins: int, ends: int) -> list[tuple[int, Automation]]:
    """Every run from one moment (inclusive) to another, in order of their moments, then as the automations are."""
    found = [
        (moment, place, automation)
        for place, automation in enumerate(automations)
        for moment in _moments(automation, begins, ends)
    ]
    return [(moment, automation) for moment, _, automation in sorted(found, key=lambda run: run[:2])]


class Timetable:
    """When each automation ran last and runs next: what a service keeps in its database, here in memory."""

    def __init__(self, automations: Iterable[Automation], now: int) -> None:
        self._automations = {automation.id: automation for automation in automations}
        self.last_run_at: dict[str, int] = {}
        self.next_run_at = {id: next_run(automation, now) for id, automation in self._automations.items()}

    def due(self, now: int) -> list[tuple[int, Automation]]:
        """The automations whose moment has come, each with that moment, in order."""
        found = sorted((at, id) for id, at in self.next_run_at.items() if at <= now)
        return [(at, self._automations[id]) for at, id in found]

    def ran(self, id: str, at: int) -> int:
        """An automation has run, whether something was posted or not. The moment of its next run."""
        self.last_run_at[id] = at
        self.next_run_at[id] = next_run(self._automations[id], at + 1)
        return self.next_run_at[id]


def next_run(automation: Automation, now: int) -> int:
    """The first moment of an automation that is not before `now`.

    >>> next_run(Automation("a", "pro", "toys", 30, 10, 7, 9, Filters()), 8 * 60 * MINUTE + 41 * MINUTE) // MINUTE
    1870
    """
    return next(_moments(automation, now, now + 48 * 60 * MINUTE))


def due_of(automation: Automation, at: int) -> int:
    """By when the run at that moment is promised."""
    return at + PATIENCE[automation.tier] * MINUTE


def _moments(automation: Automation, begins: int, ends: int) -> Iterator[int]:
    step = automation.every * MINUTE
    first = begins - (begins - automation.offset * MINUTE) % step
    for moment in range(first if first >= begins else first + step, ends, step):
        if automation.begins <= moment // (60 * MINUTE) % 24 < automation.ends:
            yield moment


def _automation(number: int, draws: Random) -> Automation:
    tier = draws.choices(TIERS, [_SHARES[tier] for tier in TIERS])[0]
    every = draws.choice(EVERY[tier])
    begins, ends = draws.choice(_HOURS)
    return Automation(
        id=f"automation-{number}",
        tier=tier,
        category=draws.choices(CATEGORIES, [1 / place for place in range(1, len(CATEGORIES) + 1)])[0],
        every=every,
        offset=0 if draws.random() < 2 / 3 else draws.randrange(every),
        begins=begins,
        ends=ends,
        filters=_filters(draws),
        user_id=f"user-{number // 3}",
    )


def _filters(draws: Random) -> Filters:
    def perhaps(share: float) -> bool:
        return draws.random() < share

    return Filters(
        min_discount=draws.choice((20, 30, 40)) if perhaps(0.8) else None,
        max_price=draws.choice((20, 50, 100)) if perhaps(0.5) else None,
        min_rating=draws.choice((3.5, 4.0, 4.5)) if perhaps(0.6) else None,
        min_reviews=draws.choice((20, 50, 200)) if perhaps(0.4) else None,
        exclude_keywords=tuple(draws.sample(_DISLIKED, draws.randint(1, 2))) if perhaps(0.5) else (),
    )
