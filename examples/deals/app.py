"""The service: many automations want the deals of few categories, from an API that counts every call.

`accoda worker examples.deals.app:app` runs it; `examples.deals.api` and `examples.deals.asking` are the API and
the requests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from accoda import App, RateLimited
from accoda.demand import Answer, Demand, Prefetch, Waiter, Weights

from .automations import MINUTE, Automation, Wish, due_of, matches, population, runs
from .catalogue import Deal
from .client import DealsClient, Reply, read_deals

FRESH_FOR = 600
"""Seconds for which deals are worth posting. Older ones are not: a price that is gone annoys people."""
LOOK_AHEAD = 300
"""Seconds that a prefetch looks ahead: less than `FRESH_FOR`, so that what it finds is fresh when it is wanted."""


class Post(Struct, frozen=True):
    """What is published for one run of an automation: at least one deal."""

    run: str
    tier: str
    deals: tuple[Deal, ...]


class Outlet(Protocol):
    """Where results go."""

    def publish(self, post: Post) -> None:
        """Post deals to an automation's channel."""
        ...

    def ran(self, run: str) -> None:
        """A run of an automation is over: also if no deal passed its filters, and nothing was published."""
        ...


class Products(Struct, frozen=True):
    """Products to look up, a token each."""

    asins: tuple[str, ...]


class Plan(Struct, frozen=True):
    """What the API is believed to grant, and what of Accoda is used. The defaults are how the service runs; the others
    are there to see what each is worth."""

    capacity: int = 20
    refill: int = 20
    observes: bool = True
    shared: bool = True
    ranked: bool = True
    prefetches: bool = True

    @property
    def weights(self) -> Weights:
        """Without ranks, all requests are equally urgent: first in, first out."""
        same = dict.fromkeys(Weights().tiers, 0.0)
        return Weights() if self.ranked else Weights(urgency=0, crowd=0, each=0, tiers=same)

    def key(self, automation: Automation) -> str:
        """What automations share a fetch by: the category, or nothing at all."""
        return automation.category if self.shared else f"{automation.category}/{automation.id}"


class Service(Struct, frozen=True):
    """The app, its demand, and the requests for it."""

    app: App
    deals: Demand
    plan: Plan

    async def ask(self, automation: Automation, at: int) -> Answer:
        """An automation's moment has come: it wants its deals by the time that its plan promises."""
        wish = Wish(automation.user_id, automation.filters)
        waiter = Waiter(run_id(automation, at), automation.tier, due_of(automation, at), wish)
        return await self.deals.request(self.plan.key(automation), waiter)


def run_id(automation: Automation, at: int) -> str:
    """Names one run of an automation."""
    return f"{automation.id}@{at // MINUTE}"


def make_service(
    client: DealsClient,
    automations: Sequence[Automation],
    outlet: Outlet,
    plan: Plan,
    app: App,
) -> Service:
    """The app with its budget, its demand and its handlers."""

    def upcoming(now: int, until: int) -> Iterator[tuple[str, int]]:
        return ((plan.key(automation), at) for at, automation in runs(automations, now, until))

    prefetch = Prefetch(upcoming=upcoming, look_ahead=LOOK_AHEAD, most=5, least_left=10) if plan.prefetches else None
    app.budget("keepa", capacity=plan.capacity, refill=plan.refill, per=60)
    deals = app.demand("deals", cost=5, budget="keepa", fresh_for=FRESH_FOR, weights=plan.weights, prefetch=prefetch)

    @deals.fetch
    async def fetch(key: str) -> list[Deal]:
        reply = await client.deals(key.partition("/")[0])
        heed(app, plan, reply)
        return read_deals(reply)

    @deals.deliver
    async def deliver(waiter: Waiter[Wish], found: list[Deal]) -> None:
        wanted = tuple(deal for deal in found if matches(deal, waiter.data.filters))
        if wanted:
            outlet.publish(Post(waiter.id, waiter.tier, wanted))
        outlet.ran(waiter.id)

    @app.handler("products", budget="keepa", cost=lambda products: len(products.asins))
    async def look_up(products: Products) -> None:
        heed(app, plan, await client.products(list(products.asins)))

    return Service(app, deals, plan)


def heed(app: App, plan: Plan, reply: Reply) -> None:
    """What an answer means for the budget of the job that runs, whatever else it says."""
    budget = app.current.budget
    if plan.observes and reply.left is not None:
        budget.observe(left=reply.left, refill_in=reply.refill_in)
    if reply.status == 429:
        raise RateLimited(retry_after=reply.retry_after or 60)
    if reply.status == 500:
        budget.spent(0)


class Console:
    """Stands for the users' channels and the service's database."""

    def publish(self, post: Post) -> None:
        best = max(post.deals, key=lambda deal: deal.discount)
        print(f"{post.run} ({post.tier}): {len(post.deals)} deals, {best.title} at -{best.discount} %", flush=True)

    def ran(self, run: str) -> None:
        print(f"{run}: has run", flush=True)


AUTOMATIONS = population(150)
service = make_service(
    DealsClient(os.environ.get("DEALS_API", "http://127.0.0.1:8095")), AUTOMATIONS, Console(), Plan(), App()
)
app = service.app
