"""What a handler says of its budgets while it runs: `batch.budget` and `app.current.budget`.

Nothing is stored here. Reports come from whatever thread, and are applied in order when the batch is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from accoda import times
from accoda.errors import InvalidInput
from accoda.limits import COST
from accoda.times import milliseconds


class HasId(Protocol):
    """A job that runs."""

    @property
    def id(self) -> int: ...


class BudgetReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was said. `budget` None: all budgets of the queue. `at`: the moment at which it was said, by the
    storage's clock; 0 if it was said where there is no such clock, until it comes to where there is one.

    Either `spent` (of `job`, whose call took `duration` seconds, if that was said), or `left` (told to `job`, if to
    one) with `refill_in` or `reset_at`, or one of `closed_for` and `closed_until`.
    """

    at: int
    budget: str | None = None
    job: int | None = None
    spent: int | None = None
    duration: float | None = None
    left: float | None = None
    refill_in: float | None = None
    reset_at: int | None = None
    closed_for: float | None = None
    closed_until: int | None = None


class BudgetReporter:
    """`batch.budget`: what the handler of a batch says of the budgets of its queue."""

    def __init__(
        self, budgets: Sequence[str], report: Callable[[BudgetReport], None], now: Callable[[], int] | None = None
    ) -> None:
        self._budgets = tuple(budgets)
        self._report = report
        self._now = now or (lambda: 0)

    def observe(
        self,
        *,
        left: float,
        refill_in: float | timedelta | None = None,
        reset_at: datetime | int | None = None,
        budget: str | None = None,
        job: HasId | None = None,
    ) -> None:
        """What the API itself said: so many tokens are `left`.

        `refill_in`: seconds until the next step of the refill, then every `per`. `reset_at`: the moment at which all
        are back. Without either the rhythm stays as it is known. A queue with several budgets names the one that is
        meant. `job`: it was the answer to this job's call. Jobs of the batch that tell nothing of their own are then
        taken to be unknown to the API yet; without it, all of them are known to it.
        """
        if refill_in is not None and reset_at is not None:
            raise InvalidInput("reset_at", "give either refill_in or reset_at, not both")
        self._report(
            BudgetReport(
                at=self._now(),
                budget=self._one(budget),
                job=None if job is None else job.id,
                left=_tokens(left),
                refill_in=None if refill_in is None else times.seconds("refill_in", refill_in),
                reset_at=None if reset_at is None else milliseconds("reset_at", reset_at),
            )
        )

    def spent(self, job: HasId, cost: int, *, duration: float | timedelta | None = None) -> None:
        """What the job's call really cost, where it is not the job's own cost; the last word counts.

        To budgets that count jobs, 0 says that there was no call. `duration`: how many seconds the call took, for the
        log; without it, that is how long the handler ran.
        """
        if type(cost) is not int or not 0 <= cost <= COST:
            raise InvalidInput("cost", f"must be a whole number >= 0, not {cost!r}")
        took = None if duration is None else times.seconds("duration", duration)
        self._report(BudgetReport(at=self._now(), job=job.id, spent=cost, duration=took))

    def close(
        self,
        *,
        seconds: float | timedelta | None = None,
        until: datetime | int | None = None,
        budget: str | None = None,
    ) -> None:
        """Nothing is paid by this budget (by none of the queue's) for so many seconds, or until that moment."""
        if (seconds is None) == (until is None):
            raise InvalidInput("until", "give either seconds or until")
        self._report(
            BudgetReport(
                at=self._now(),
                budget=self._known(budget),
                closed_for=None if seconds is None else times.seconds("seconds", seconds),
                closed_until=None if until is None else milliseconds("until", until),
            )
        )

    def pass_on(self, report: BudgetReport) -> None:
        """A report from where there is no clock of the storage: from a child process."""
        self._report(replace(report, at=self._now()))

    def _known(self, budget: str | None) -> str | None:
        if budget is not None and budget not in self._budgets:
            raise InvalidInput("budget", f"must be one of the queue's, {', '.join(self._budgets)}, not {budget!r}")
        return budget

    def _one(self, budget: str | None) -> str:
        if self._known(budget) is not None:
            return budget  # type: ignore[return-value] # known, and not None
        if len(self._budgets) != 1:
            raise InvalidInput("budget", f"say which: the queue has {', '.join(self._budgets)}")
        return self._budgets[0]


class JobBudgetReporter:
    """`app.current.budget`: the same for one job."""

    def __init__(self, job: HasId, reporter: BudgetReporter) -> None:
        self.observe = partial(reporter.observe, job=job)
        self.spent = partial(reporter.spent, job)
        self.close = reporter.close


def _tokens(left: object) -> float:
    """What is left may be less than nothing: some APIs lend, and say so."""
    if isinstance(left, bool) or not isinstance(left, (int, float)) or not abs(left) <= COST:
        raise InvalidInput("left", f"must be a number of tokens, not {left!r}")
    return left
