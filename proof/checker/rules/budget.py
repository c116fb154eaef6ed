"""What a job costs, and whether its budget had it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proof.checker.ledger import Ledger
from proof.checker.rules.base import SECOND, Broken, Options

_TINY = 1e-6  # tokens that rounding may cost


def within_budget(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for takes in ledger.takes.values():
        for call in takes:
            most = call.start.max_cost
            if most is not None and sum(job.cost for job in call.end.taken) > most:
                cost = sum(job.cost for job in call.end.taken)
                yield Broken(None, f"a take with max_cost {most} was given jobs that cost {cost}", (call,))
    yield from _overspent(ledger, options)


class _Balance(Struct, frozen=True):
    """What a budget has `left` at the moment `at`, and how tokens come in: evenly, in steps of `refill` from `step_at`
    on, or all at once from `reset_at` on. Moments, and `per`, are nanoseconds."""

    capacity: float
    refill: float
    per: float
    left: float
    at: int
    step_at: int | None = None
    reset_at: int | None = None

    def left_at(self, moment: float) -> float:
        if self.reset_at is not None:
            return self.left if moment < self.reset_at else self.capacity
        if self.step_at is not None:
            steps = 0 if moment < self.step_at else 1 + (moment - self.step_at) // self.per
            return min(self.capacity, self.left + self.refill * steps)
        return min(self.capacity, self.left + self.refill * (moment - self.at) / self.per)

    def spend(self, amount: float, moment: int) -> _Balance:
        left = self.left_at(moment) - amount
        return replace(self, left=left, at=moment, step_at=self._next(self.step_at, moment),
                       reset_at=self._next(self.reset_at, moment))  # fmt: skip

    def _next(self, step: int | None, moment: int) -> int | None:
        if step is None or moment < step:
            return step
        return step + int((1 + (moment - step) // self.per) * self.per)


def _balance(fields: dict[str, Any], at: int) -> _Balance:
    capacity = float(fields["capacity"])
    step, reset = (None if (x := fields.get(name)) is None else at + int(float(x) * SECOND) for name in _RHYTHMS)
    per = float(fields.get("per", 1)) * SECOND
    return _Balance(capacity, float(fields.get("refill", 0)), per, float(fields.get("left", capacity)), at, step, reset)


_RHYTHMS = ("refill_in", "reset_in")


def _overspent(ledger: Ledger, options: Options) -> Iterator[Broken]:
    """Notes tell of budgets: `budget` says how much there is and how it comes in, `spend` (name, amount) what was used.

    Spending goes by the store's clock, the notes by the recorder's: what comes in within the tolerance counts.
    """
    balances: dict[str, _Balance] = {}
    for note in ledger.notes("budget", "spend"):
        name = str(note.fields.get("name"))
        if note.kind == "budget":
            balances[name] = _balance(note.fields, note.at)
        elif name in balances:
            balance, amount = balances[name], float(note.fields["amount"])
            tolerance = options.slack * SECOND + options.drift * (note.at - balance.at)
            missing = amount - balance.left_at(note.at + tolerance)
            if missing > _TINY:
                text = f"budget {name}: overspent by {missing:g} at {note.at / SECOND:.6f}, by {note.client}"
                yield Broken(None, text)
            balances[name] = balance.spend(amount, note.at)
