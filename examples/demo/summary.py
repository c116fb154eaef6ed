"""The text at the end of the demo: the totals, what happened, and what to try next."""

from __future__ import annotations

from examples.demo.totals import Totals
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def summary(totals: Totals, elapsed: float, *, where: str, changes: int = 0) -> RenderableType:
    """The text at the end. `changes`: how many changes were made with the dashboard or the API."""
    stats = totals.stats
    parts = ("done", "dead", "ready", "delayed", "taken")
    terms = [f"{getattr(stats, name)} {name}" for name in parts] + [f"{totals.removed} removed"]
    problems = totals.problems()
    verdict = Text("It adds up: no job was lost, none was counted twice.", "green")
    if problems and changes:
        times = "once" if changes == 1 else f"{changes} times"
        verdict = Text(f"You changed something {times} yourself, which these totals do not include.", "yellow")
    elif problems:
        verdict = Text("\n".join(f"IT DOES NOT ADD UP: {problem}" for problem in problems), "bold red")
    return Group(
        Text(f"\nAccoda demo: {elapsed:.0f} s on {where}\n", "bold"),
        Text(f"{totals.enqueued} enqueued = {' + '.join(terms)}", "bold"),
        verdict,
        Text(),
        _facts(totals),
        Text("\nTry next", "bold"),
        _next_steps(),
    )


def _facts(totals: Totals) -> Table:
    stats = totals.stats
    waits = ", ".join(f"{level.name} {wait:.2f} s" for level, wait in totals.mean_waits.items())
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="bold")
    table.add_row(str(stats.retried), "retried, each time after a longer delay")
    table.add_row(str(stats.buried), f"buried with all attempts used up; {totals.revived} revived since")
    table.add_row(str(stats.expired), "expired: the lease was not settled in time, so the job came back by itself")
    table.add_row(str(totals.refused), "refused: lost. The lease had ended, so the late report changed nothing")
    if waits:
        table.add_row("wait", f"mean: {waits}")
    return table


def _next_steps() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_row("accoda serve", "the dashboard and the API that ran beside it, for your own queues")
    table.add_row("accoda top", "the same in a terminal")
    table.add_row("make test", "the promises shown here, proved")
    table.add_row("examples/demo/work.py", "the worker that you just watched")
    table.add_row("README.md, docs/", "how to use it in your own program")
    return table
