"""`accoda budgets`: what they have left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import StoreOptions, lazily, present, store_options
from accoda.cli.draw import Column, bar, card, echo, now, table
from accoda.cli.words import ago
from accoda.operations.words import amount

if TYPE_CHECKING:
    from accoda.operations import budgets as operations
    from accoda.operations.budgets import BudgetView
else:
    operations = lazily("accoda.operations.budgets")


@click.command()
@click.argument("name", required=False)
@store_options
def budgets(store: StoreOptions, name: str | None) -> None:
    """List the budgets and what each has left, or show the budget NAME."""
    if name is None:
        present(store, store.ask(lambda app: operations.list(app)), _draw)
    else:
        present(store, store.ask(lambda app: operations.get(app, name)), _show)


def _draw(found: list[BudgetView]) -> None:
    if not found:
        echo("There are no budgets: an app declares them with app.budget(…).", err=True)
        return
    moment = now()
    counts = [Column(title, right=True) for title in ("left", "of", "reserved", "used today", "waiting")]
    table(
        [Column("budget", cut=True), "", *counts, Column("state", cut=True)],
        [
            (
                one.name,
                bar(one.left / one.capacity if one.capacity else 0.0, 10),
                *(amount(value) for value in (one.left, one.capacity, one.reserved, one.used_today)),
                len(one.claims),
                _state(one, moment),
            )
            for one in found
        ],
    )


def _show(budget: BudgetView) -> None:
    moment = now()
    held = [f"{amount(one.amount)} by {one.worker}, until {ago(one.until, moment)}" for one in budget.reservations]
    wanted = [
        f"{amount(one.amount)} for {one.queue}, since {ago(one.since, moment)}{', urgent' if one.urgent else ''}"
        for one in budget.claims
    ]
    observed = (
        f"{amount(budget.observed_left)}, {ago(budget.observed_at, moment)}"
        if budget.observed_left is not None
        else None
    )
    card(
        f"budget {budget.name}",
        [
            ("left", f"{amount(budget.left)} of {amount(budget.capacity)}  {bar(budget.left / budget.capacity, 20)}"),
            ("available", f"{amount(budget.available)} to an ordinary job"),
            ("state", _state(budget, moment)),
            ("used today", f"{amount(budget.used_today)}, {budget.utilisation:.0%} of what could have been"),
            ("refused today", f"{budget.refused_today:,}" if budget.refused_today else None),
            ("the API said", observed),
            ("refill", f"measured at {budget.pace:.0%} of the configured rate" if budget.pace < 1 else None),
            ("reserved", "\n".join(held)),
            ("waiting", "\n".join(wanted)),
        ],
    )


def _state(budget: BudgetView, moment: int) -> str:
    if budget.closed_until is not None:
        return f"closed, opens again {ago(budget.closed_until, moment)}"
    return f"refills {ago(budget.next_refill, moment)}" if budget.next_refill else "full"
