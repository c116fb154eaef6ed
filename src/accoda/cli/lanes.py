"""`accoda lanes QUEUE`: the rules for its lanes, which lanes wait and run, and changes of the rules."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import StoreOptions, confirm, known, lazily, present, store_options, yes_option
from accoda.cli.completion import complete_queues
from accoda.cli.draw import Column, bar, card, echo, say, table

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations import lanes as operations
    from accoda.operations.lanes import LanesView, LaneView, RulesView
else:
    operations = lazily("accoda.operations.lanes")

BAR = 10
"""Columns of a bar."""


@click.command()
@click.argument("queue", shell_complete=complete_queues)
@click.option("--lane", metavar="LANE", help="Change --limit or --weight of this lane alone.")
@click.option("--limit", type=click.IntRange(0, 10_000), metavar="N", help="So many of a lane at once; 0 pauses it.")
@click.option("--no-limit", is_flag=True, help="As many of a lane as there are.")
@click.option("--weight", type=click.FloatRange(0.001, 1000), metavar="N", help="Turns of --lane where others have 1.")
@click.option("--fair/--no-fair", default=None, help="Lanes take turns in each priority level.")
@click.option("--by-cost/--no-by-cost", default=None, help="A turn is as long as a job's cost.")
@click.option("--total", type=click.IntRange(0), metavar="N", help="So many jobs of the queue run at once.")
@click.option("--no-total", is_flag=True, help="As many as workers take.")
@click.option("--shared", metavar="NAME", help="Share the limits with all queues that have this NAME here.")
@click.option("--no-shared", is_flag=True, help="Limits of its own.")
@click.option("--reset", is_flag=True, help="Forget all changes, or those of --lane.")
@click.option("--limit-rows", "rows", type=click.IntRange(0, 1000), metavar="N", default=20, show_default=True,
              help="List so many lanes.")  # fmt: skip
@yes_option
@store_options
def lanes(store: StoreOptions, queue: str, lane: str | None, reset: bool, rows: int, yes: bool, **given: Any) -> None:
    """Show the lanes of QUEUE: rules, and who waits and runs. Or change rules.

    A lane is whom a job belongs to, such as a customer. Of a lane with a limit,
    jobs beyond it are held: they come into the line when a place is free.

    Changes hold at once, for all workers, whatever the code declares; --reset
    goes back to that.
    """
    changes = _changes(lane, given)
    if reset and changes:
        raise click.UsageError("--reset goes with --lane alone: give the new rules in a second command.")
    if lane is not None and not reset and not changes:
        raise click.UsageError("what of this lane? Add --limit, --no-limit, --weight or --reset.")
    if reset:
        of = "" if lane is None else f" of lane {lane}"
        confirm(f"Forget what was changed in the rules{of} for the lanes of {queue}", yes)

    async def do(app: App) -> LanesView:
        await _known(app, queue)
        if reset:
            return await operations.reset(app, queue, lane, rows)
        return await operations.change(app, queue, changes, rows) if changes else await operations.get(app, queue, rows)

    present(store, store.ask(do), partial(_draw, rows))


def _changes(lane: str | None, given: dict[str, Any]) -> dict[str, object]:
    """The options as changes of rules."""
    for name in ("limit", "total", "shared"):
        if given[f"no_{name}"] and given[name] is not None:
            raise click.UsageError(f"give either --{name} or --no-{name}.")
    limited = given["limit"] is not None or given["no_limit"]
    if lane is None:
        if given["weight"] is not None:
            raise click.UsageError("--weight is for one lane: add --lane LANE.")
        changes: dict[str, object] = {"limit": given["limit"]} if limited else {}
    else:
        changes = {"limits": {lane: given["limit"]}} if limited else {}
        if given["weight"] is not None:
            changes["weights"] = {lane: given["weight"]}
    for name in ("total", "shared"):
        if given[name] is not None or given[f"no_{name}"]:
            changes[name] = given[name]
    return changes | {name: given[name] for name in ("fair", "by_cost") if given[name] is not None}


async def _known(app: App, queue: str) -> None:
    """Refuse a queue that has neither rules nor ever had a job, and say which one may be meant."""
    from accoda.errors import NotFound

    try:
        await operations.get(app, queue, 0)
    except NotFound:
        await known(app, queue)


def _draw(asked: int, found: LanesView) -> None:
    """The card, and the table of the lanes; none were counted if none were asked for."""
    card(f"lanes of {found.queue}", _facts(found))
    if not found.lanes:
        if not found.count and asked:
            say("No job of a lane waits or runs.", err=True)
        return
    columns = [Column("lane", cut=True), *(Column(title, right=True) for title in ("in line", "held", "running"))]
    echo()
    limited = any(each.limit is not None for each in found.lanes)
    weighted = any(each.weight != 1 for each in found.lanes)
    columns += [Column("limit", right=True)] if limited else []
    columns += [Column("weight", right=True)] if weighted else []
    columns += [Column("share", right=True)]
    # Both would not fit into 80 columns.
    columns += [Column(title, right=True) for title in ("last hour", "runs")] if found.runs else [Column("")]
    table(columns, [_row(each, limited, weighted, found.runs > 0) for each in found.lanes])
    if found.count > len(found.lanes):
        more = found.count - len(found.lanes)
        say(f"{more:,} more {'lane' if more == 1 else 'lanes'}: add --limit-rows {min(1000, found.count)}", err=True)


def _row(lane: LaneView, limited: bool, weighted: bool, ran: bool) -> list[object]:
    row: list[object] = [lane.lane, *(f"{count:,}" for count in (lane.ready, lane.held, lane.taken))]
    if limited:
        row.append("paused" if lane.limit == 0 else "" if lane.limit is None else f"{lane.limit:,}")
    if weighted:
        row.append(f"{lane.weight:g}")
    row.append(f"{lane.share:.0%}")
    return [*row, f"{lane.runs_share:.0%}", f"{lane.runs:,}"] if ran else [*row, bar(lane.share, BAR)]


def _facts(found: LanesView) -> list[tuple[str, object]]:
    rules = found.rules
    waiting = f"{found.ready:,} in line, {found.held:,} held, {found.taken:,} running"
    waiting += f"; {found.runs:,} ran in the last hour" if found.runs else ""
    if rules is None:
        return [("rules", "none: a job of a lane waits as any other"), ("jobs", waiting)]
    total = None if rules.total is None else f"at most {rules.total:,} of the queue run at once"
    fair = "lanes take turns in each priority level" + (", by the cost of their jobs" if rules.by_cost else "")
    return [
        ("limit", "none" if rules.limit is None else _limit(rules.limit)),
        ("shared", None if rules.shared is None else _shared(rules.shared, found.shared_with)),
        ("total", total),
        ("fair", fair if rules.fair else None),
        ("own rules", "\n".join(_own(rules)) or None),
        ("jobs", waiting),
    ]


def _limit(limit: int) -> str:
    return f"{limit:,} of a lane in line or running at once" if limit else "0: every lane is paused"


def _shared(name: str, queues: list[str]) -> str:
    from accoda.operations.words import listed

    others = f"{listed(queues)}: the lowest limit holds" if queues else "no other queue yet"
    return f"as {name}, with {others}"


def _own(rules: RulesView, shown: int = 10) -> list[str]:
    """What holds for single lanes."""
    lines = []
    for lane in sorted({*rules.limits, *rules.weights}):
        parts = []
        if lane in rules.limits:
            limit = rules.limits[lane]
            parts.append("no limit" if limit is None else f"limit {limit:,}" if limit else "paused (limit 0)")
        if lane in rules.weights:
            parts.append(f"weight {rules.weights[lane]:g}")
        lines.append(f"{lane}: {', '.join(parts)}")
    return lines if len(lines) <= shown else [*lines[:shown], f"and {len(lines) - shown:,} more: --json has all"]
