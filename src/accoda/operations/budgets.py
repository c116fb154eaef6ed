"""Budgets: what each has left, which workers hold a part of it, and which queues wait for it."""

from __future__ import annotations

import asyncio
import builtins

from msgspec import Struct

from accoda.budget import BudgetView as Account
from accoda.budget.usage import SUFFIX, Usage, read_usage
from accoda.errors import NotFound
from accoda.operations.bookkeeping import bookkeeping
from accoda.operations.host import Host
from accoda.operations.moments import now_of, rfc3339
from accoda.operations.views import same

LOG_FOR = 3_600_000
"""Milliseconds before now at which a log begins where nothing else is said."""


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


class UsageView(Struct, rename="camel", frozen=True, kw_only=True):
    """What one run of a job took. `operation` is its queue, `cost` what it cost in tokens, `costs` what each budget
    paid, `duration` the seconds that its call took."""

    id: int
    at: str
    operation: str
    job_id: int
    key: str | None = None
    cost: int = 0
    costs: dict[str, int] = {}
    success: bool = True
    duration: float = 0.0

    @classmethod
    def of(cls, usage: Usage) -> UsageView:
        return cls(
            **same(usage, "id operation key cost costs success duration"), at=rfc3339(usage.at), job_id=usage.job
        )


class LogPage(Struct, frozen=True):
    """Lines of a log. `next` is the `after` of the next page; None: this was the last."""

    items: builtins.list[UsageView]
    next: int | None = None


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


async def log(
    host: Host, name: str, *, since: int | None = None, after: int | None = None, limit: int = 100
) -> LogPage:
    """The log of what a budget's tokens were used for, oldest first: after the line of that id, or from the moment
    `since` on, else of the last hour.

    The log is kept by queue. Ids are the store's, so those of all queues are in one order. A page may have fewer lines
    than its limit, or none, and still have a next one: lines of other budgets are left out of it.
    """
    await get(host, name)
    store = await host.connections.get()
    books = await bookkeeping(store, (await store.stats()).queues, host.demands)
    queues = [queue.removesuffix(SUFFIX) for queue in sorted(books) if queue.endswith(SUFFIX)]
    if after is None and since is None:
        since = await now_of(store) - LOG_FOR
    logs = await asyncio.gather(*(read_usage(store, queue, since, after, limit) for queue in queues))
    lines = sorted((line for log in logs for line in log), key=lambda line: line.id)
    page = lines[:limit]
    more = page[-1].id if page and len(lines) >= limit else None
    return LogPage([UsageView.of(line) for line in page if name in line.costs], more)
