"""`accoda demands`: the numbers of a demand, its waiters, and joining or leaving it on behalf of a waiter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import StoreOptions, lazily, present, store_options
from accoda.cli.draw import Column, card, echo, now, say, table
from accoda.cli.enqueue import read_json
from accoda.cli.groups import Nouns
from accoda.cli.words import ago, read_moment
from accoda.operations.words import length, rough, state_word

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations import demands as operations
    from accoda.operations.demands import AnswerView, DemandView, FetchView, WaiterView
else:
    operations = lazily("accoda.operations.demands")

name_argument = click.argument("name")
key_argument = click.argument("key")
waiter_argument = click.argument("waiter")

ANSWERS = {
    "created": "A fetch was enqueued: job {}.",
    "attached": "It waits with others for job {}.",
    "cached": "There is a fresh result; its delivery is job {}.",
    "stale": "There is a stale result, delivered by job {}; a new one is fetched.",
}
LEFT = {
    "left": "{} has left; others still wait.",
    "cancelled": "{} was the last one: the fetch is cancelled.",
    "absent": "{} does not wait for this key.",
}


@click.group(cls=Nouns, noun="NAME")
def demands() -> None:
    """List demands; show the demand NAME, or join, leave, see waiters.

    To join and leave, --app names the app that declares the demand.
    """


@demands.command("list", cls=click.Command)
@store_options
def list_(store: StoreOptions) -> None:
    """List all demands in numbers."""
    present(store, store.ask(lambda app: operations.list(app)), _draw)


@demands.command()
@name_argument
@store_options
def show(store: StoreOptions, name: str) -> None:
    """Show one demand and its fetches, most urgent first."""

    async def ask(app: App) -> tuple[DemandView, list[FetchView]]:
        return await operations.get(app, name), await operations.fetches(app, name)

    found, fetches = store.ask(ask)
    present(store, found, lambda demand: _show(demand, fetches))


@demands.command()
@name_argument
@key_argument
@waiter_argument
@click.option("--tier", metavar="TIER", default="free", show_default=True, help="One of the demand's tiers.")
@click.option("--due", metavar="MOMENT", help="By when it is wanted: 2030-01-31T09:00:00Z.")
@click.option("--data", metavar="JSON", help="For deliver, such as a filter.")
@store_options
def request(store: StoreOptions, name: str, key: str, waiter: str, **given: Any) -> None:
    """Let WAITER have the result of KEY."""
    due = None if given["due"] is None else read_moment("due", given["due"])
    data = None if given["data"] is None else read_json(given["data"])

    async def do(app: App) -> AnswerView:
        from accoda.demand import Waiter

        return await operations.request(app, name, key, Waiter(waiter, given["tier"], due, data))

    present(store, store.ask(do), lambda answer: say(ANSWERS[answer.what].format(answer.id)))


@demands.command()
@name_argument
@key_argument
@waiter_argument
@store_options
def leave(store: StoreOptions, name: str, key: str, waiter: str) -> None:
    """Let WAITER no longer wait for KEY."""
    what = store.ask(lambda app: operations.leave(app, name, key, waiter))
    present(store, {"what": what}, lambda _: say(LEFT[what].format(waiter)))


@demands.command()
@name_argument
@key_argument
@store_options
def waiters(store: StoreOptions, name: str, key: str) -> None:
    """List the waiters of KEY."""
    present(store, store.ask(lambda app: operations.waiters(app, name, key)), _draw_waiters)


def _draw_waiters(found: list[WaiterView]) -> None:
    if not found:
        echo("No waiter: no fetch of this key waits or runs.", err=True)
        return
    moment = now()
    table(
        [Column("waiter", cut=True), "tier", "due"],
        [(one.id, one.tier, ago(one.due, moment) or "now") for one in found],
    )


def _draw(found: list[DemandView]) -> None:
    if not found:
        echo("There are no demands: an app declares them with app.demand(…).", err=True)
        return
    counts = [Column(title, right=True) for title in ("waiting", "urgent", "oldest", "requests", "calls", "hits")]
    rows = [
        (
            one.queue,
            f"{one.depth:,}",
            f"{one.bands.get('urgent', 0):,}",
            rough(one.oldest_age) if one.depth else "",
            f"{_requests(one):,}",
            f"{one.calls:,}",
            f"{one.hit_rate:.0%}",
        )
        for one in found
    ]
    table([Column("demand", cut=True), *counts], rows)


def _requests(one: DemandView) -> int:
    return one.cached + one.stale + one.attached + one.created


def _show(one: DemandView, fetches: list[FetchView]) -> None:
    card(
        f"demand {one.queue}",
        [
            ("waiting", f"{one.depth:,}: " + ", ".join(f"{count:,} {band}" for band, count in one.bands.items())),
            ("oldest", length(one.oldest_age) if one.depth else None),
            ("mean wait", length(one.mean_wait) if one.depth else None),
            (
                "requests",
                f"{_requests(one):,}: {one.cached:,} cached, {one.stale:,} stale, {one.attached:,} attached, "
                f"{one.created:,} created",
            ),
            ("left", f"{one.left:,}" if one.left else None),
            ("calls", f"{one.calls:,}, {one.delivered:,} deliveries"),
        ],
    )
    if fetches:
        echo()
        score, waiting = Column("score", right=True), Column("waiters", right=True)
        rows = [(each.id, each.key, state_word(each.state), f"{each.score:g}", each.waiters) for each in fetches]
        table([Column("id", right=True), Column("key", cut=True), "state", score, waiting], rows)
