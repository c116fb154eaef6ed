"""How tokens come in as time passes. Pure: a function of an account and a moment.

Three rhythms. Evenly, as long as nothing else is known; in steps of `refill` every `per`, after an observation with
`refill_in`; full at once at `reset_at`, and then every `per`, after an observation with that. Never more than capacity.
"""

from __future__ import annotations

from math import ceil

from msgspec.structs import replace

from accoda.budget.model import Account, Budget
from accoda.limits import MOMENT

TINY = 1e-6
"""Tokens that rounding may cost: an amount is there if no more than this is missing."""
DAY = 86_400_000
SET_BACK = 60_000
"""An account that was written this many milliseconds in the future was written before the storage's clock was set back.
Smaller differences are those between workers, whose idea of the storage's clock is a round trip apart."""


def opened(budget: Budget, now: int) -> Account:
    """The account of a budget that was never used: full."""
    return _new(budget, budget.capacity, now)


def opened_blind(budget: Budget, now: int) -> Account:
    """The account of a budget whose records were lost: nothing is left before one `per` has passed.

    What was spent and what is under way is unknown, so only tokens that come in from now on are counted on. An API that
    refills in steps has had one by then, wherever in its rhythm it is now. The first observation knows better.
    """
    return replace(_new(budget, 0.0, now), step_at=now + per_ms(budget))


def _new(budget: Budget, left: float, now: int) -> Account:
    capacity, refill, per = float(budget.capacity), float(budget.refill), float(budget.per)
    return Account(capacity, refill, per, left, now, day=now // DAY, day_from=now, day_left=left)


def fit(account: Account, budget: Budget, now: int) -> Account:
    """The account under the code's numbers: they win over stored ones from now on, the time before went by the old."""
    if (account.capacity, account.refill, account.per) == (budget.capacity, budget.refill, budget.per):
        return account
    account = advance(account, now)
    capacity, refill, per = float(budget.capacity), float(budget.refill), float(budget.per)
    return replace(account, capacity=capacity, refill=refill, per=per, left=min(account.left, capacity))


def left_at(account: Account, now: int) -> float:
    """What is left at a moment, not before the account's own, if nothing is spent until then."""
    if account.reset_at is not None:
        left = max(account.left, account.capacity * account.pace) if now >= account.reset_at else account.left
    elif account.step_at is not None:
        left = account.left + account.refill * account.pace * _times(account.step_at, per_ms(account), now)
    else:
        left = account.left + rate(account) * max(0, now - account.at)
    return min(account.capacity, left)


def flows_evenly(account: Account) -> bool:
    """Whether nothing else is known of its rhythm."""
    return account.step_at is None and account.reset_at is None


def rate(account: Account) -> float:
    """Tokens a millisecond, where they flow in evenly: as the code says, or as slowly as they were seen to."""
    return account.refill * account.pace / (account.per * 1000)


def reach(account: Account, level: float, start: int) -> int | None:
    """The first moment from `start` at which that much is left. None: it holds less at most."""
    account = advance(account, start)
    missing = level - account.left
    if missing <= TINY:
        return start
    if level > account.capacity + TINY:
        return None
    if account.reset_at is not None:
        return account.reset_at
    if account.step_at is not None:
        steps = ceil((missing - TINY) / (account.refill * account.pace))
        return min(MOMENT, account.step_at + (steps - 1) * per_ms(account))
    # Half of TINY: the moment that is found must itself pass the test above.
    return min(MOMENT, account.at + ceil((missing - TINY / 2) / rate(account)))


def next_refill(account: Account, now: int) -> int | None:
    """When tokens come in next. None: it is full."""
    account = advance(account, now)
    if account.left >= account.capacity:
        return None
    return account.reset_at or account.step_at or now


def advance(account: Account, now: int) -> Account:
    """The account at a later moment: tokens have come in, what has ended is gone, a new day has begun."""
    if account.at - now > SET_BACK:
        account = _shift(account, account.at - now)
    now = max(now, account.at)  # a worker whose idea of the time is a round trip behind turns nothing back
    account = _new_day(account, now)
    left = left_at(account, now)
    if now >= min(account.step_at or MOMENT, account.reset_at or MOMENT):
        account = replace(account, low=account.left, high=left, since=0.0)
    return replace(
        account,
        left=left,
        gained=account.gained + left - account.left,
        at=now,
        step_at=_next(account.step_at, per_ms(account), now),
        reset_at=_next(account.reset_at, per_ms(account), now),
        closed_until=None if (account.closed_until or 0) <= now else account.closed_until,
        holds={id: hold for id, hold in account.holds.items() if hold.until > now},
        claims={queue: claim for queue, claim in account.claims.items() if claim.until > now},
    )


def _new_day(account: Account, now: int) -> Account:
    day = now // DAY
    if account.day == day:
        return account
    return replace(account, day=day, day_from=day * DAY, day_left=left_at(account, day * DAY), used=0.0, refused=0)


def _shift(account: Account, by: int) -> Account:
    """Everything that was reckoned from a clock which was then set back. What the API said of `reset_at` stays."""
    return replace(
        account,
        at=account.at - by,
        step_at=None if account.step_at is None else account.step_at - by,
        holds={id: replace(h, reserved_at=h.reserved_at - by, until=h.until - by) for id, h in account.holds.items()},
        claims={queue: replace(c, since=c.since - by, until=c.until - by) for queue, c in account.claims.items()},
    )


def per_ms(of: Account | Budget) -> int:
    """Its period in milliseconds."""
    return max(1, ceil(of.per * 1000))


def _times(first: int, every: int, now: int) -> int:
    """How often it came, if first then."""
    return 0 if now < first else 1 + (now - first) // every


def _next(first: int | None, every: int, now: int) -> int | None:
    return None if first is None else first + _times(first, every, now) * every
