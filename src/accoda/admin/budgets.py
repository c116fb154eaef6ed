"""Budgets: what each has left, who holds a part of it, and who waits for it."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.admin.moments import shown
from accoda.budget import BudgetView as Account
from accoda.errors import NotFound

if TYPE_CHECKING:
    from accoda.app import App


class ReservationView(Struct, rename="camel", frozen=True, kw_only=True):
    """What a worker holds until its job is settled."""

    amount: float
    worker: str
    until: str


class ClaimView(Struct, rename="camel", frozen=True, kw_only=True):
    """What a queue waits for."""

    queue: str
    amount: float
    since: str
    urgent: bool


class BudgetView(Struct, rename="camel", frozen=True, kw_only=True):
    """A budget at one moment. `available` is what an ordinary job could reserve now; `utilisation` the used share of
    what could have been used today; `pace` below 1: tokens come in more slowly than the code says."""

    name: str
    capacity: float
    left: float
    reserved: float
    available: float
    closed_until: str | None = None
    next_refill: str | None = None
    used_today: float
    refused_today: int
    utilisation: float
    pace: float
    observed_left: float | None = None
    observed_at: str | None = None
    reservations: builtins.list[ReservationView]
    claims: builtins.list[ClaimView]

    @classmethod
    def of(cls, account: Account) -> BudgetView:
        holds = sorted(account.reservations.values(), key=lambda hold: hold.until)
        claims = sorted(account.claims.items(), key=lambda claim: claim[1].since)
        return cls(
            name=account.name,
            capacity=account.capacity,
            left=account.left,
            reserved=account.reserved,
            available=account.available,
            closed_until=shown(account.closed_until),
            next_refill=shown(account.next_refill),
            used_today=account.used_today,
            refused_today=account.refused_today,
            utilisation=account.utilisation,
            pace=account.pace,
            observed_left=account.observed_left,
            observed_at=shown(account.observed_at),
            reservations=[
                ReservationView(amount=hold.amount, worker=hold.worker, until=shown(hold.until) or "") for hold in holds
            ],
            claims=[
                ClaimView(queue=queue, amount=claim.amount, since=shown(claim.since) or "", urgent=claim.urgent)
                for queue, claim in claims
            ],
        )


async def list(app: App) -> builtins.list[BudgetView]:
    """Every budget that this app declares or that any worker has written, by name."""
    accounts = await app.budget_views()
    return [BudgetView.of(accounts[name]) for name in sorted(accounts)]


async def get(app: App, name: str) -> BudgetView:
    """One budget."""
    account = (await app.budget_views()).get(name)
    if account is None:
        raise NotFound("budget", name, "an app declares it with app.budget(…)")
    return BudgetView.of(account)
