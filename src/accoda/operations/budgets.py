"""Budgets: what each has left, which workers hold a part of it, and which queues wait for it."""

from __future__ import annotations

import builtins

from msgspec import Struct

from accoda.budget import BudgetView as Account
from accoda.errors import NotFound
from accoda.operations.host import Host
from accoda.operations.moments import rfc3339
from accoda.operations.views import same


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
            **same(account, "name capacity left reserved available used_today refused_today"),
            **same(account, "utilisation pace observed_left"),
            closed_until=rfc3339(account.closed_until),
            next_refill=rfc3339(account.next_refill),
            observed_at=rfc3339(account.observed_at),
            reservations=[
                ReservationView(amount=hold.amount, worker=hold.worker, until=rfc3339(hold.until)) for hold in holds
            ],
            claims=[
                ClaimView(queue=queue, amount=claim.amount, since=rfc3339(claim.since), urgent=claim.urgent)
                for queue, claim in claims
            ],
        )


async def list(host: Host) -> builtins.list[BudgetView]:
    """Every budget that this app declares or that any worker has written, by name."""
    accounts = await host.books.views()
    return [BudgetView.of(accounts[name]) for name in sorted(accounts)]


async def get(host: Host, name: str) -> BudgetView:
    """One budget."""
    account = (await host.books.views()).get(name)
    if account is None:
        raise NotFound("budget", name, "an app declares it with app.budget(…)")
    return BudgetView.of(account)
