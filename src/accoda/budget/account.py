"""What happens to one account: what a head needs of it, reservations, real costs, observations. Pure values.

The promise: with the right rate, and calls that observe, `left` less all reservations is never more than what the API
has left beyond the calls that are reserved and have not come to it yet. `settle` has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from accoda.budget.flow import TINY, advance, flows_evenly, left_at, next_refill, reach
from accoda.budget.model import CLAIM_FOR, Account, Ask, Budget, BudgetView, Claim, Hold, Observation
from accoda.limits import MOMENT

SLOWEST = 0.1
"""The least `pace`: however few tokens come in, a head waits no longer than ten times what the code says."""

Older = tuple[float, float]
"""Claims that go before an ask: those of urgent heads, and the others."""


def free(account: Account, now: int) -> float:
    """What is left and not reserved."""
    return left_at(account, max(now, account.at)) - reserved(account, now)


def reserved(account: Account, now: int) -> float:
    """What reservations hold that have not ended."""
    return sum(hold.amount for hold in account.holds.values() if hold.until > now)


def need(budget: Budget, ask: Ask) -> int:
    """What the head takes of it."""
    return 1 if budget.counts == "jobs" else ask.head_cost


def level(budget: Budget, ask: Ask, older: Older) -> float:
    """How much must be free for the head to be paid.

    An ordinary head leaves the headroom, and what older claims wait for. One that costs so much that this could never
    be (more than the share without the headroom) may have it when the budget is full. An urgent head may use the
    headroom, which ordinary claims cannot have; beyond the headroom it comes after older claims like any other.
    """
    urgent, ordinary = older
    head = need(budget, ask)
    if not head:
        return float("-inf")  # it costs nothing: the budget need only be open
    if not ask.urgent:
        return head + min(budget.kept, budget.capacity - head) + urgent + ordinary
    return head + urgent + (0.0 if head + urgent <= budget.kept + TINY else ordinary)


def older_claims(account: Account, queue: str, now: int) -> Older:
    """The claims of other queues that are older than this queue's own, or all of them if it has none."""
    own = account.claims.get(queue)
    mine = own.since if own and own.until > now else MOMENT
    urgent = ordinary = 0.0
    for other, claim in account.claims.items():
        if other != queue and claim.until > now and claim.since < mine:
            urgent, ordinary = urgent + claim.amount * claim.urgent, ordinary + claim.amount * (not claim.urgent)
    return urgent, ordinary


def affordable(account: Account, budget: Budget, ask: Ask, now: int) -> bool:
    """Whether the head can be paid now."""
    if (account.closed_until or 0) > now:
        return False
    return free(account, now) >= level(budget, ask, older_claims(account, ask.queue, now)) - TINY


def payable_at(account: Account, budget: Budget, ask: Ask, now: int) -> int:
    """The first moment at which the head can be paid, if nothing happens but the passing of time.

    Between two ends of reservations or claims the level is constant, and `reach` knows when it is there. Beyond the
    last end nothing is reserved or claimed, so the level is within the capacity and is reached.
    """
    start = max(now, account.closed_until or 0)
    ends = {hold.until for hold in account.holds.values()} | {claim.until for claim in account.claims.values()}
    moments = [start, *sorted(end for end in ends if end > start)]
    for moment, end in zip(moments, [*moments[1:], MOMENT], strict=True):
        wanted = level(budget, ask, older_claims(account, ask.queue, moment)) + reserved(account, moment)
        found = reach(account, wanted, moment)
        if found is not None and found < end:
            return found
    return MOMENT


def spare(account: Account, budget: Budget, ask: Ask, now: int) -> float:
    """What may be reserved beyond the head: not the headroom, and nothing that any other queue waits for."""
    others = sum(c.amount for queue, c in account.claims.items() if queue != ask.queue and c.until > now)
    return free(account, now) - budget.kept - others


def claim(account: Account, budget: Budget, ask: Ask, now: int) -> Account:
    """Note that the queue's head waits. It keeps its place in the line as long as it is renewed."""
    old = account.claims.get(ask.queue)
    if old and old.until <= now:
        old = None
    amount = float(need(budget, ask))
    if old and (old.amount, old.urgent) == (amount, ask.urgent) and old.until - now > CLAIM_FOR * 500:
        return account  # half of its time is left: no write for that
    # Behind all others, also those of the same millisecond: no two have the same place.
    since = old.since if old else max([now, *(other.since + 1 for other in account.claims.values())])
    new = Claim(amount, since, now + round(CLAIM_FOR * 1000), ask.urgent)
    return replace(account, claims=account.claims | {ask.queue: new})


def unclaim(account: Account, queue: str) -> Account:
    """The queue's head no longer waits."""
    if queue not in account.claims:
        return account
    return replace(account, claims={other: claim for other, claim in account.claims.items() if other != queue})


def hold(account: Account, ask: Ask, id: str, new: Hold) -> Account:
    """Reserve, and end the queue's claim. The same reservation twice is one."""
    account = unclaim(advance(account, new.reserved_at), ask.queue)
    return replace(account, holds=account.holds | {id: new})


def keep(account: Account, id: str, amount: float | None, now: int) -> Account:
    """Lower a reservation to what was taken; None: nothing was, so it ends. One that has ended stays so."""
    old = account.holds.get(id)
    if old is None or old.until <= now:
        return account
    account = advance(account, now)
    holds = {other: hold for other, hold in account.holds.items() if other != id}
    if amount is not None:
        holds[id] = replace(old, amount=min(amount, old.amount))
    return replace(account, holds=holds)


def renew(account: Account, ids: Iterable[str], until: int, now: int) -> Account:
    """Make reservations last. One that has ended stays so: its tokens may be reserved by others by now."""
    live = {id: hold for id in ids if (hold := account.holds.get(id)) and hold.until > now}
    longer = {id: replace(hold, until=max(until, hold.until)) for id, hold in live.items()}
    return replace(account, holds=account.holds | longer) if longer else account


def settle(account: Account, id: str, amount: float, observed: Sequence[Observation], now: int) -> Account:
    """End a reservation: `amount` was spent, and the API said this.

    Without an observation the amount is taken off; `left` may go below zero and refills from there. A reservation that
    has ended already gave its tokens back, so what was spent is taken off all the same.

    With one, the API's number counts, and the amount is in it. What it cannot know are calls that came to the API after
    this one and were settled before it; they are among those that settled since this one was reserved.
    - Those without an observation (`blind`) are taken off.
    - None with an observation settled since then: the number holds, up or down.
    - Some did (`overtaken`). If one of those came to the API after this call, then this call is in its number, so
      `left` holds as it is, and this number is too old; if none did, this number holds. Nobody knows which, so the
      lower of the two, which holds either way. Taking the amount off besides would count it twice, and where that
      leaves nothing, no call would come to put it right.
    Calls that are still reserved may be in the number already: they count twice until they settle.
    """
    account = advance(account, now)
    old = account.holds.get(id)
    rest = {other: hold for other, hold in account.holds.items() if other != id}
    account = replace(account, holds=rest, used=account.used + amount, since=account.since + amount)
    if not observed or old is None:
        account = replace(account, left=account.left - amount)
        for seen in observed:  # what settled since it was reserved is no longer known: only ever lower
            account = _lower(account, replace(seen, at=now), 0.0, now)
        return replace(account, holds={other: replace(h, blind=h.blind + amount) for other, h in rest.items()})
    before = account
    for number, seen in enumerate(observed):  # calls of one batch may overtake each other as well
        if seen.at < old.reserved_at:  # no answer came before its call: one without a moment is as of now
            seen = replace(seen, at=now)
        account = (_lower if number or old.overtaken else observe)(account, seen, old.blind, now)
    account = measure(account, observed[-1])
    return overtake(account if old.overtaken else learn(account, before, before.left - amount - account.left))


def observe(account: Account, seen: Observation, less: float, now: int) -> Account:
    """Believe the API's number in full, up or down, less what it cannot know."""
    account = advance(account, now)
    # Tokens came in since the answer did, which was after the API wrote it: on the safe side.
    then = replace(account, left=min(account.capacity, seen.left), at=min(seen.at, now))
    if seen.refill_in is not None:
        then = replace(then, step_at=then.at + round(seen.refill_in * 1000), reset_at=None)
    elif seen.reset_at is not None:
        then = replace(then, reset_at=seen.reset_at, step_at=None)
    then = advance(then, now)
    return replace(then, left=then.left - less, gained=account.gained, seen_left=float(seen.left), seen_at=now)


def _lower(account: Account, seen: Observation, less: float, now: int) -> Account:
    """Believe the API's number only where it is less, and its rhythm only where it is later.

    Later matters: an answer that was under way while a step came tells of a step to come that has been already. If it
    was believed, the step would fill up what was spent since; the next one to answer knows better.
    """
    told = observe(account, seen, less, now)
    lowered = replace(account, left=min(account.left, told.left), seen_left=told.seen_left, seen_at=now)
    if account.step_at is not None and told.step_at is not None:
        return replace(lowered, step_at=max(account.step_at, told.step_at))
    if account.reset_at is not None and told.reset_at is not None:
        return replace(lowered, reset_at=max(account.reset_at, told.reset_at))
    return lowered


def learn(account: Account, before: Account, missing: float) -> Account:
    """Find out how fast tokens really flow in: an answer that was believed had `missing` fewer than were reckoned.

    What those under way hold may be missing because they have been there already: that is no sign. When a quarter of a
    refill should have come in, the share that did is the pace from then on. A wrong rate in the code, or others that
    spend too, then cost a few refusals and not one for every token. Never faster than the code says: answers raise
    what is left anyway.
    """
    if before.seen_at is None or not flows_evenly(account):  # the first answer says how much there was, not how fast
        return replace(account, gained=0.0, short=0.0)
    sign = missing if missing < 0 else max(0.0, missing - reserved(account, account.at))
    account = replace(account, short=account.short + sign)
    if account.gained < max(1.0, account.refill * account.pace / 4):
        return account
    came = min(2.0, max(0.1, 1 - account.short / account.gained))
    pace = account.pace if 0.9 <= came <= 1.1 else min(1.0, max(SLOWEST, account.pace * came))  # answers take time
    return replace(account, pace=pace, gained=0.0, short=0.0)


def measure(account: Account, seen: Observation) -> Account:
    """Find out how much a step, or a reset, really brings.

    The last one was reckoned to raise what is left from `low` to `high`. What the API has left, and what was spent
    `since` then, and what calls under way may have taken off already, is the most that it can have raised it to. If
    that is less, so is the pace. It is raised again, never above what the code says, when the API has more than `high`
    left.
    """
    gain = account.high - account.low
    if flows_evenly(account) or gain <= TINY:
        return account
    most = seen.left + account.since + reserved(account, account.at)
    if most < account.high - TINY:
        came = max(0.0, most - account.low) / gain
    elif account.pace < 1 and seen.left > account.high + TINY:
        came = (seen.left - account.low) / gain
    else:
        return account
    pace = min(1.0, max(SLOWEST, account.pace * came))
    return replace(account, pace=pace, high=account.low + gain * pace / account.pace)


def overtake(account: Account) -> Account:
    """The calls under way may have come to the API before the one that was just believed."""
    return replace(account, holds={id: replace(hold, overtaken=True) for id, hold in account.holds.items()})


def close(account: Account, until: int, refused: int, now: int) -> Account:
    """Reserve nothing before that moment; what was closed for longer stays so. `refused`: how often the API said no."""
    account = advance(account, now)
    if (
        refused and account.seen_at is not None and flows_evenly(account)
    ):  # its numbers were known, and still too much was reckoned with
        account = replace(account, pace=max(SLOWEST, account.pace * 0.95))
    later = max(until, account.closed_until or 0)
    return replace(account, closed_until=later if later > now else None, refused=account.refused + refused)


def reopen(account: Account, now: int) -> Account:
    """End what `close` began."""
    return replace(advance(account, now), closed_until=None)


def view(name: str, account: Account, budget: Budget | None, now: int) -> BudgetView:
    """The account for people."""
    account = advance(account, now)
    kept = budget.kept if budget else 0.0
    possible = max(0.0, account.day_left) + account.refill * (account.at - account.day_from) / (account.per * 1000)
    held = reserved(account, account.at)
    usable = 0.0 if account.closed_until else max(0.0, account.left - held - kept)
    return BudgetView(
        name=name,
        capacity=account.capacity,
        left=account.left,
        reserved=held,
        available=usable,
        at=account.at,
        closed_until=account.closed_until,
        next_refill=next_refill(account, now),
        used_today=account.used,
        refused_today=account.refused,
        utilisation=account.used / possible if possible > 0 else 0.0,
        pace=account.pace,
        observed_left=account.seen_left,
        observed_at=account.seen_at,
        reservations=account.holds,
        claims=account.claims,
    )
