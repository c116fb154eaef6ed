"""The records of budgets. No I/O here; moments are the storage's, in integer milliseconds, lengths are seconds.

Ask ──► reserve ──► Grant ──► take ──► keep (what was not taken goes back) ──► run ──► Settlement ──► settle
           ├──► Wait    not now: look again at `until`
           └──► Never   the head costs more than the budget can ever hold
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Literal, NoReturn

from msgspec import Struct, field

from accoda.errors import InvalidInput
from accoda.model import check_count, check_duration, check_lease, check_moment, check_name, check_queue

Counts = Literal["cost", "jobs"]

MOST = float(1 << 53)
"""Beyond it a float no longer holds every integer."""
LOOK_AGAIN = 5.0
"""Seconds after which a caller that waits should ask again, although its moment has not come: another worker may have
given tokens back, and its claim has to be renewed."""
CLAIM_FOR = 10.0
"""Seconds that a claim outlives its last renewal."""
GRACE = 5.0
"""Seconds that a reservation outlives its lease: renewed together with the lease, it never ends first."""


class Budget(Struct, frozen=True):
    """Tokens that jobs share: at most `capacity` of them, and `refill` more every `per` seconds; 20, and 20 a minute,
    where nothing else is said.

    `counts` says what is paid for: the jobs' `cost`, or `jobs`, one token each. `headroom` is the share of the capacity
    that is kept for urgent work.

    >>> Budget("keepa", capacity=20, refill=20, per=60).rate
    0.3333333333333333
    >>> Budget("keepa", capacity=0, refill=20, per=60)
    Traceback (most recent call last):
        ...
    accoda.errors.InvalidInput: capacity: must be a number of tokens from 1 to 2**53, not 0
    """

    name: str
    capacity: float = 20.0
    refill: float = 20.0
    per: float = 60.0
    counts: Counts = "cost"
    headroom: float = 0.0

    def __post_init__(self) -> None:
        check_name("budget", self.name)
        # Costs are whole numbers: what holds less than one token could never pay anything.
        _check_number("capacity", self.capacity, 1.0, "must be a number of tokens from 1 to 2**53")
        _check_number("refill", self.refill, 1e-9, "must be a number of tokens > 0")
        _check_number("per", self.per, 0.001, "must be a number of seconds, at least 0.001")
        if self.counts not in ("cost", "jobs"):
            _refuse("counts", "must be 'cost' or 'jobs'", self.counts)
        _check_number("headroom", self.headroom, 0.0, "must be a share of the capacity: 0 <= headroom < 1")
        if self.headroom >= 1:
            _refuse("headroom", "must be a share of the capacity: 0 <= headroom < 1", self.headroom)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.refill / self.per

    @property
    def kept(self) -> float:
        """The tokens that are kept for urgent work."""
        return self.capacity * self.headroom


class Ask(Struct, frozen=True):
    """A queue wants to take jobs: its head costs `head_cost`, and it wants at most `most_jobs` of about that cost.

    `urgent`: the head may use the headroom. `lease` is that of the jobs: the reservation ends with it.
    """

    queue: str
    budgets: tuple[str, ...]
    head_cost: int = 0
    urgent: bool = False
    most_jobs: int = 1
    lease: float = 60.0
    worker: str = ""

    def __post_init__(self) -> None:
        check_queue(self.queue)
        if type(self.budgets) is not tuple or not self.budgets:
            _refuse("budgets", "must be a tuple of one or more names", self.budgets)
        if len(set(self.budgets)) != len(self.budgets):
            _refuse("budgets", "must name each budget once", self.budgets)
        check_count("head_cost", self.head_cost)
        check_count("most_jobs", self.most_jobs)
        if self.most_jobs < 1:
            _refuse("most_jobs", "must be at least 1", self.most_jobs)
        check_lease(self.lease)


class Grant(Struct, frozen=True):
    """Take `count` jobs within `max_cost` (None: no budget counts cost); `amounts` says what that reserved."""

    id: str
    count: int
    max_cost: int | None
    amounts: dict[str, float]
    until: int = 0
    """The moment at which the reservation ends, unless it is renewed."""


class Wait(Struct, frozen=True):
    """Nothing yet. `until` is the first moment at which the head can be paid, if nothing else changes."""

    until: int
    budget: str
    """The budget that makes it wait longest."""


class Never(Struct, frozen=True):
    """The head can never be paid: bury it with `reason`."""

    budget: str
    cost: float
    capacity: float

    @property
    def reason(self) -> str:
        """
        >>> Never("keepa", 30, 20).reason
        "costs 30, and budget 'keepa' holds 20 at most"
        """
        return f"costs {self.cost:.15g}, and budget {self.budget!r} holds {self.capacity:.15g} at most"


ReserveResult = Grant | Wait | Never


class Spent(Struct, frozen=True):
    """What was really used: budgets that count jobs pay `jobs`, those that count cost pay `cost`."""

    jobs: int = 0
    cost: int = 0

    def __post_init__(self) -> None:
        check_count("jobs", self.jobs)
        check_count("cost", self.cost)


class Observation(Struct, frozen=True):
    """The API's own numbers, as of the moment `at` (of the storage) at which its answer came.

    `refill_in`: seconds to the next step of `refill` tokens, and then every `per`. `reset_at`: the moment at which it
    is full again. Neither: what is known of the rhythm stays as it is, and where nothing is known, tokens flow in
    evenly. `left` may be below zero: some APIs lend.
    """

    budget: str
    left: float
    at: int
    refill_in: float | None = None
    reset_at: int | None = None

    def __post_init__(self) -> None:
        check_name("budget", self.budget)
        _check_number("left", self.left, -MOST, "must be a finite number of tokens")
        check_moment("at", self.at)
        if self.refill_in is not None and self.reset_at is not None:
            raise InvalidInput("reset_at", "give either refill_in or reset_at, not both")
        if self.refill_in is not None:
            check_duration("refill_in", self.refill_in)
        if self.reset_at is not None:
            check_moment("reset_at", self.reset_at)


class Settlement(Struct, frozen=True):
    """How a batch ended: what was `spent` of its grant, and what the API said, in the order in which it said it.

    `closed_until`: the API refused (429) until that moment, `refused` times; `closes` names the budgets that this is
    about, none being all of the grant.
    """

    grant: Grant
    spent: Spent = Spent()
    observed: tuple[Observation, ...] = ()
    closed_until: int | None = None
    closes: tuple[str, ...] = ()
    refused: int = 0


class Hold(Struct, frozen=True, omit_defaults=True):
    """A reservation in one account.

    The last two decide what an observation by this call is worth; `account.settle` says how. `overtaken`: another that
    observed has settled since this was reserved. `blind`: what those that did not observe have settled since then.
    """

    amount: float
    reserved_at: int
    until: int
    worker: str = ""
    overtaken: bool = False
    blind: float = 0.0


class Claim(Struct, frozen=True, omit_defaults=True):
    """A queue's head waits for `amount`: queues that came later may only use what is left beyond it."""

    amount: float
    since: int
    until: int
    urgent: bool = False


class Account(Struct, frozen=True, omit_defaults=True):
    """What is stored of one budget: `left` tokens at the moment `at`, before what is reserved is taken off.

    With `step_at` (the next one), `refill` tokens come in steps; with `reset_at` (the next one), it is full at once
    then; with neither they flow in evenly. `capacity`, `refill` and `per` are those of the code that wrote last.
    `pace` is the share of `refill` that really flows in, as far as answers have shown; `gained` and `short` are what it
    is learnt from: tokens that were reckoned to flow in lately, and how many of them the API did not have. Of steps and
    resets: the last was reckoned to raise what is left from `low` to `high`, and so much was spent `since`.
    `day`, `day_from`, `day_left`, `used` and `refused` are the counters of the day, and what it began with.
    """

    capacity: float
    refill: float
    per: float
    left: float
    at: int
    step_at: int | None = None
    reset_at: int | None = None
    closed_until: int | None = None
    holds: dict[str, Hold] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    seen_left: float | None = None
    seen_at: int | None = None
    pace: float = 1.0
    gained: float = 0.0
    short: float = 0.0
    low: float = 0.0
    high: float = 0.0
    since: float = 0.0
    day: int = 0
    day_from: int = 0
    day_left: float = 0.0
    used: float = 0.0
    refused: int = 0


class BudgetView(Struct, frozen=True):
    """A budget at one moment, for people. `available` is what an ordinary head could reserve now, before claims.

    `used_today` and `refused_today` (by the API) count since midnight UTC; `utilisation` is the used share of what
    could have been used since then, or since the account was opened. `pace` below 1: tokens come in more slowly than
    the code says, or others spend them too.
    """

    name: str
    capacity: float
    left: float
    reserved: float
    available: float
    at: int
    closed_until: int | None
    next_refill: int | None
    used_today: float
    refused_today: int
    utilisation: float
    pace: float
    observed_left: float | None
    observed_at: int | None
    reservations: dict[str, Hold]
    claims: dict[str, Claim]


def _check_number(field: str, value: object, least: float, rule: str) -> None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= MOST
    if not good or not isfinite(value):  # type: ignore[arg-type]
        _refuse(field, rule, value)


def _refuse(field: str, rule: str, value: Any) -> NoReturn:
    shown = repr(value)
    raise InvalidInput(field, f"{rule}, not {shown if len(shown) <= 80 else shown[:77] + '...'}")
