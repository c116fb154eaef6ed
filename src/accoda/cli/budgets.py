"""`accoda budgets`: what they have left, and what their tokens were used for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import StoreOptions, lazily, present, store_options
from accoda.cli.draw import Column, bar, card, echo, now, say, table
from accoda.cli.groups import Nouns
from accoda.cli.jobs import limit_option
from accoda.cli.words import ago, read_length, stamp
from accoda.operations.words import amount

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations import budgets as operations
    from accoda.operations.budgets import BudgetView, LogPage
else:
    operations = lazily("accoda.operations.budgets")


name_argument = click.argument("name")


@click.group(cls=Nouns, noun="NAME")
def budgets() -> None:
    """List the budgets and what each has left; show the budget NAME, or its log."""


@budgets.command("list", cls=click.Command)
@store_options
def list_(store: StoreOptions) -> None:
    """List all budgets."""
    present(store, store.ask(lambda app: operations.list(app)), _draw)


@budgets.command()
@name_argument
@store_options
def show(store: StoreOptions, name: str) -> None:
    """Show one budget."""
    present(store, store.ask(lambda app: operations.get(app, name)), _show)


@budgets.command()
@name_argument
@click.option("--for", "length_", metavar="LENGTH", default="1h", show_default=True, help="Of the last 30m, 2d.")
@click.option("--after", type=click.IntRange(0, 2**63 - 1), metavar="ID", help="Only lines after this one.")
@limit_option
@store_options
def log(store: StoreOptions, name: str, length_: str, after: int | None, limit: int) -> None:
    """What its tokens were used for, oldest first."""
    seconds = read_length("for", length_)

    async def ask(app: App) -> LogPage:
        from accoda.operations.moments import now_of

        since = await now_of(app.storage) - round(seconds * 1000)
        return await operations.log(app, name, since=max(0, since), after=after, limit=limit)

    present(store, store.ask(ask), lambda page: _draw_log(page, name))


def _draw_log(page: LogPage, name: str) -> None:
    if not page.items and page.next is None:
        echo("Nothing was paid for in this time.", err=True)
        return
    numbers = [Column(title, right=True) for title in ("tokens", "took")]
    table(
        ["at", Column("operation", cut=True), Column("job", right=True), Column("key", cut=True), *numbers, "ended"],
        [
            (
                stamp(line.at),
                line.operation,
                line.job_id,
                line.key or "",
                line.costs[name],
                f"{line.duration:.3f} s",
                "done" if line.success else "failed",
            )
            for line in page.items
        ],
    )
    if page.next is not None:
        say(f"More: --after {page.next}", err=True)


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
