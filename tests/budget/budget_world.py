"""An API that counts its tokens itself, and workers that call it through the books: what the properties are about."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from accoda.budget import ledger as book
from accoda.budget.ledger import Basis, Ledger
from accoda.budget.model import Ask, Budget, Grant, Observation, ReserveResult, Settlement, Spent

START = 1_700_000_000_000
EPSILON = 1e-3

Rhythm = Literal["even", "steps", "reset"]


@dataclass
class Api:
    """The truth. `phase`: milliseconds into its period at the start."""

    capacity: float
    refill: float
    per: int
    rhythm: Rhythm
    phase: int = 0
    left: float = 0.0
    now: int = START
    refused: int = 0
    spent: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.capacity

    def advance(self, ms: int) -> None:
        if self.rhythm == "even":
            self.left = min(self.capacity, self.left + self.refill * ms / self.per)
        else:
            steps = (self.now + ms - START + self.phase) // self.per - (self.now - START + self.phase) // self.per
            if steps and self.rhythm == "reset":
                self.left = self.capacity
            else:
                self.left = min(self.capacity, self.left + self.refill * steps)
        self.now += ms

    def call(self, cost: float) -> bool:
        if self.left < cost - EPSILON:
            self.refused += 1
            return False
        self.left -= cost
        self.spent += cost
        return True

    def next_step(self) -> int:
        return self.now + self.per - (self.now - START + self.phase) % self.per

    def retry_after(self, cost: float) -> int:
        """Milliseconds until it can pay that: what it says with a 429."""
        if self.rhythm == "even":
            return ceil((cost - self.left) * self.per / self.refill)
        return self.next_step() - self.now

    def answer(self, name: str, at: int) -> Observation:
        """What it says of itself now, for a reader at `at`."""
        if self.rhythm == "steps":
            # The client reckons from the arrival of the answer, a way later than it was true.
            return Observation(name, self.left, at, refill_in=(self.next_step() - self.now) / 1000)
        if self.rhythm == "reset":
            return Observation(name, self.left, at, reset_at=self.next_step())
        return Observation(name, self.left, at)


@dataclass
class Call:
    """One call under way."""

    grant: Grant
    cost: int
    seen: Observation | None = None
    arrived: bool = False


@dataclass
class World:
    """A budget, its API, and calls under way. All moments are exact."""

    budget: Budget
    api: Api
    ledger: Ledger = field(default_factory=Ledger)
    calls: list[Call] = field(default_factory=list)
    ids: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def basis(self) -> Basis:
        return Basis({self.budget.name: self.budget}, self.api.now)

    def ask(self, queue: str, cost: int, most: int = 1, urgent: bool = False) -> ReserveResult:
        ask = Ask(queue, (self.budget.name,), cost, urgent, most)
        self.ledger, answer = book.reserve(self.ledger, self.basis, ask, str(next(self.ids)))
        return answer

    def reserve(self, queue: str, cost: int, most: int, taken: int) -> Grant | None:
        """Reserve for up to `most` jobs, and take `taken` of what is granted, one call for all."""
        answer = self.ask(queue, cost, most)
        if not isinstance(answer, Grant):
            return None
        jobs = min(taken, answer.count, answer.max_cost // cost if cost and answer.max_cost is not None else most)
        self.ledger = book.keep(self.ledger, self.basis, answer, Spent(jobs, jobs * cost))
        if jobs:
            self.calls.append(Call(answer, jobs * cost))
        return answer

    def arrive(self, call: Call) -> bool:
        """The call comes to the API."""
        call.arrived = True
        if not self.api.call(call.cost):
            return False
        call.seen = self.api.answer(self.budget.name, self.api.now)
        return True

    def settle(self, call: Call, observed: bool = True) -> None:
        """Its answer comes back: what the API said then, and is read now."""
        self.calls.remove(call)
        seen: tuple[Observation, ...] = ()
        if observed and call.seen is not None:
            old = call.seen
            seen = (Observation(old.budget, old.left, self.api.now, old.refill_in, old.reset_at),)
        settlement = Settlement(call.grant, Spent(1, call.cost), seen)
        self.ledger = book.settle(self.ledger, self.basis, settlement)

    def pass_time(self, ms: int) -> None:
        self.api.advance(ms)
        if self.calls:  # those that live renew what they reserved
            self.ledger = book.renew(self.ledger, self.basis, [call.grant for call in self.calls], 60.0)

    def free(self) -> float:
        view = book.views(self.ledger, self.basis)[self.budget.name]
        return view.left - view.reserved

    def truly_free(self) -> float:
        """What the API has beyond the calls that are reserved and have not come to it."""
        return self.api.left - sum(call.cost for call in self.calls if not call.arrived)
