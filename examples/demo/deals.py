"""Many requests to an API that counts every call: demands and budgets in the demo.

A small version of `examples/deals`. The API is simulated; waiters, ranks, tokens, cache and deliveries are real.
"""

from __future__ import annotations

import asyncio
from random import Random

from msgspec import Struct

from accoda.app import App
from accoda.clock import Clock
from accoda.demand import Demand, Waiter

CATEGORIES = ("books", "cameras", "garden", "games", "kitchen", "laptops", "music", "shoes")
TIERS = ("business", "pro", "starter", "free")
BUDGET, COST = "shop-api", 5
DUE_WITHIN = 60
"""Seconds within which a request wants its deals."""


class Deal(Struct, frozen=True):
    """A product with a reduced price."""

    title: str
    price: float


class Filters(Struct, frozen=True):
    """Which deals a waiter wants."""

    most: float


class ShopIsDown(Exception):
    """The API failed."""


def add_deals(app: App, random: Random) -> Demand:
    """The demand `deals`, with 20 tokens every ten seconds; a call sometimes fails."""
    app.budget(BUDGET, capacity=20, refill=20, per=10)
    deals = app.demand("deals", cost=COST, budget=BUDGET, fresh_for=8, keep_for=30)

    @deals.fetch
    async def fetch(category: str) -> list[Deal]:
        await asyncio.sleep(0.3)
        if random.random() < 0.08:
            raise ShopIsDown(f"503 from the shop for {category}")
        return [Deal(f"{category} {n}", round(random.uniform(5, 200), 2)) for n in range(4)]

    @deals.deliver
    async def deliver(waiter: Waiter[Filters], found: list[Deal]) -> int:
        return sum(deal.price <= waiter.data.most for deal in found)

    return deals


class RandomRequests:
    """Requests by many waiters for few categories."""

    def __init__(self, deals: Demand, clock: Clock, random: Random) -> None:
        self._deals = deals
        self._clock = clock
        self._random = random
        self._asked = 0

    async def run_once(self) -> None:
        """Make one more request."""
        self._asked += 1
        random = self._random
        waiter = Waiter(
            f"automation-{self._asked}",
            random.choice(TIERS),
            self._clock.now() + random.randrange(DUE_WITHIN) * 1000,
            Filters(random.choice((20.0, 50.0, 200.0))),
        )
        await self._deals.request(random.choice(CATEGORIES), waiter)
