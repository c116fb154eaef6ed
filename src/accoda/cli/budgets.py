"""`accoda budgets`: what they have left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import Column, StoreOptions, ago, card, now, present, run, store_options, table
from accoda.cli.draw import bar

if TYPE_CHECKING:
    from accoda.admin.budgets import BudgetView


@click.command()
@click.argument("name", required=False)
@store_options
def budgets(store: StoreOptions, name: str | None) -> None:
    """List the budgets and what each has left, or show the budget NAME."""
    found = run(_budgets(store, name))
    if name is None:
        present(store, found, _draw)
    else:
        present(store, found[0], _show)


async def _budgets(store: StoreOptions, name: str | None) -> list[BudgetView]:
    from accoda.admin import budgets as admin

    async with store.open() as app:
        return await admin.list(app) if name is None else [await admin.get(app, name)]


def _draw(found: list[BudgetView]) -> None:
    if not found:
        click.echo("There are no budgets: an app declares them with app.budget(…).", err=True)
        return
    moment = now()
    counts = [Column(title, right=True) for title in ("left", "of", "reserved", "used today", "waiting")]
    table(
        [Column("budget", cut=True), "", *counts, Column("state", cut=True)],
        [
            (
                one.name,
                bar(one.left / one.capacity if one.capacity else 0.0, 10),
                *(_amount(value) for value in (one.left, one.capacity, one.reserved, one.used_today)),
                len(one.claims),
                _state(one, moment),
            )
            for one in found
        ],
    )


def _show(budget: BudgetView) -> None:
    moment = now()
    held = [f"{_amount(one.amount)} by {one.worker}, until {ago(one.until, moment)}" for one in budget.reservations]
    wanted = [
        f"{_amount(one.amount)} for {one.queue}, since {ago(one.since, moment)}{', urgent' if one.urgent else ''}"
        for one in budget.claims
    ]
    observed = (
        f"{_amount(budget.observed_left)}, {ago(budget.observed_at, moment)}"
        if budget.observed_left is not None
        else None
    )
    card(
        f"budget {budget.name}",
        [
            ("left", f"{_amount(budget.left)} of {_amount(budget.capacity)}  {bar(budget.left / budget.capacity, 20)}"),
            ("available", f"{_amount(budget.available)} to an ordinary job"),
            ("state", _state(budget, moment)),
            ("used today", f"{_amount(budget.used_today)}, {budget.utilisation:.0%} of what could have been"),
            ("refused today", f"{budget.refused_today:,}" if budget.refused_today else None),
            ("the API said", observed),
            ("pace", f"{budget.pace:.0%} of what the code says" if budget.pace < 1 else None),
            ("reserved", "\n".join(held)),
            ("waiting", "\n".join(wanted)),
        ],
    )


def _amount(tokens: float) -> str:
    """Tokens flow in all the time; nobody wants more than one digit of a part.

    >>> _amount(1145.3193333), _amount(300.0)
    ('1,145.3', '300')
    """
    return f"{round(tokens, 1):,.12g}"


def _state(budget: BudgetView, moment: int) -> str:
    if budget.closed_until is not None:
        return f"closed, open again {ago(budget.closed_until, moment)}"
    return f"refills {ago(budget.next_refill, moment)}" if budget.next_refill else "full"
