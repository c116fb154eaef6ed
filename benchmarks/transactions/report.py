"""The tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from benchmarks.report import RESULTS, table
from benchmarks.transactions.callers import Variant
from benchmarks.transactions.django_tasks import DjangoRate

RESULT = RESULTS / "transactions.md"
HEADINGS = ("driver", "jobs go to", "order/s", "with a row/s", "with a job/s", "row adds µs", "job adds µs", "ratio")
DJANGO = ("backend", "database", "tasks/s", "order/s", "order and task/s", "task adds µs")


class Cost(Struct, frozen=True):
    """Median seconds of a transaction with an order, with a row of one's own more, and with a job more."""

    driver: str
    goes: str
    order: float
    row: float
    job: float
    rounds: int

    @classmethod
    def of(cls, driver: str, goes: str, times: Mapping[Variant, Sequence[float]]) -> Cost:
        return cls(
            driver, goes, median(times["order"]), median(times["row"]), median(times["job"]), len(times["order"])
        )

    @property
    def ratio(self) -> float:
        """What a job adds, to what a row adds."""
        return (self.job - self.order) / (self.row - self.order)


def show(costs: Sequence[Cost], rates: Sequence[DjangoRate], notes: Sequence[str]) -> str:
    lines = [
        (
            cost.driver,
            cost.goes,
            f"{1 / cost.order:,.0f}",
            f"{1 / cost.row:,.0f}",
            f"{1 / cost.job:,.0f}",
            f"{(cost.row - cost.order) * 1e6:,.0f}",
            f"{(cost.job - cost.order) * 1e6:,.0f}",
            f"{cost.ratio:.1f}",
        )
        for cost in costs
    ]
    django = [
        (rate.name, rate.storage, *(f"{value:,.0f}" for value in (rate.tasks, rate.orders, rate.both, rate.added)))
        for rate in rates
    ]
    rounds = f"{min(cost.rounds for cost in costs)} to {max(cost.rounds for cost in costs)}"
    last = "\n".join(notes)
    return f"""\
Transactions a second, one after the other: with the INSERT of an order; with one more INSERT, into an indexed table of
the caller's own; and with a job in its place. Medians of {rounds} rounds of ten transactions each, in turns.
PostgreSQL and SQLite sync each commit.

{table(HEADINGS, lines)}

Django's tasks: enqueued outside of a transaction, and beside an order in `atomic()`. On SQLite the jobs of Accoda are
in a file of their own, and those of a transaction go through the outbox.

{table(DJANGO, django)}

{last}"""
