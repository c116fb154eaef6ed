"""Whether the budgets of a queue can pay for its head, and if not, when. Pure."""

from __future__ import annotations

from msgspec import Struct

from accoda.budget.account import affordable, free, level, need, older_claims, payable_at
from accoda.budget.flow import advance, flows_evenly, per_ms
from accoda.budget.flow import rate as flow_of
from accoda.budget.model import Account, Ask
from accoda.limits import MOMENT
from accoda.model import JobInfo
from accoda.operations.why.snapshot import QueueBudget, Snapshot


class Shortage(Struct, frozen=True):
    """A budget that does not let the head pass: `short` tokens are missing until `until` (None: it never can).
    `closed`: it hands out nothing before that moment, whatever it has."""

    budget: str
    needed: float
    left: float
    short: float
    until: int | None
    closed: bool = False


def head_of(snapshot: Snapshot) -> JobInfo:
    """The job whose turn it is: the head of the line, or the job itself if it is, or would be, the head."""
    head = snapshot.head
    return head if head is not None and snapshot.ahead else snapshot.job


def shortage(snapshot: Snapshot) -> Shortage | None:
    """The budget that makes the head of the line wait longest; None: all can pay it."""
    head, now = head_of(snapshot), snapshot.now
    found = [_short(each, head, now) for each in snapshot.budgets]
    waits = [each for each in found if each is not None]
    return max(waits, key=lambda each: MOMENT if each.until is None else each.until, default=None)


def seconds_to_pay(snapshot: Snapshot) -> float:
    """Seconds until all budgets can have paid for those ahead and for the job; infinite if one never can."""
    return max((_to_pay(snapshot, each) for each in snapshot.budgets), default=0.0)


def _short(paying: QueueBudget, head: JobInfo, now: int) -> Shortage | None:
    budget, account = paying.budget, advance(paying.account, now)
    ask = _ask(paying, head, now)
    if affordable(account, budget, ask, now):
        return None
    # What costs more than the budget can hold is buried when its turn comes.
    at = MOMENT if need(budget, ask) > budget.capacity else payable_at(account, budget, ask, now)
    there = free(account, now)
    wanted = max(0.0, level(budget, ask, older_claims(account, ask.queue, now)))
    return Shortage(
        budget=budget.name,
        needed=float(need(budget, ask)),
        left=max(0.0, there),
        short=max(0.0, wanted - there),
        until=None if at >= MOMENT else at,
        closed=(account.closed_until or 0) > now,
    )


def _ask(paying: QueueBudget, head: JobInfo, now: int) -> Ask:
    claim = paying.account.claims.get(head.queue)
    live = claim is not None and claim.until > now
    return Ask(head.queue, (paying.budget.name,), head.cost, urgent=bool(live and claim and claim.urgent))


def _to_pay(snapshot: Snapshot, paying: QueueBudget) -> float:
    """Jobs ahead are taken to cost what the head and this job cost on average; other queues that wait for the same
    tokens get as many of them."""
    now, job = snapshot.now, snapshot.job
    account = advance(paying.account, now)
    own = float(need(paying.budget, _ask(paying, job, now)))
    if own > account.capacity:
        return float("inf")
    first = float(need(paying.budget, _ask(paying, head_of(snapshot), now)))
    wanted = own + snapshot.ahead * (own + first) / 2
    opens = max(0, (account.closed_until or 0) - now) / 1000
    if wanted <= 0:
        return opens
    missing = wanted + paying.budget.kept - free(account, now)
    others = sum(1 for queue, claim in account.claims.items() if queue != job.queue and claim.until > now)
    return max(opens, _seconds_for(account, missing * (1 + others), now))


def _seconds_for(account: Account, missing: float, now: int) -> float:
    """Seconds until so many tokens more have come in, were there no limit to what it holds."""
    if missing <= 0:
        return 0.0
    if flows_evenly(account):
        return missing / (flow_of(account) * 1000)
    first = account.reset_at if account.reset_at is not None else account.step_at or now
    each = account.capacity if account.reset_at is not None else account.refill
    times = int(-(-missing // max(each * account.pace, 1e-9)))
    return max(0.0, (first - now + (times - 1) * per_ms(account)) / 1000)
