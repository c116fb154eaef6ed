"""What the demo ends with: the sum, what it showed, and what to try next."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accoda.demo.account import Account


def summary(account: Account, elapsed: float, *, where: str, changes: int = 0) -> RenderableType:
    """What the demo ends with. `changes`: how often somebody meddled, by the dashboard or the API."""
    stats = account.stats
    parts = ("done", "dead", "ready", "delayed", "taken")
    terms = [f"{getattr(stats, name)} {name}" for name in parts] + [f"{account.removed} removed"]
    problems = account.problems()
    verdict = Text("It adds up: no job was lost, none was counted twice.", "green")
    if problems and changes:
        meddled = "once" if changes == 1 else f"{changes} times"
        verdict = Text(f"You changed something {meddled} yourself, which is not in these books: no verdict.", "yellow")
    elif problems:
        verdict = Text("\n".join(f"IT DOES NOT ADD UP: {problem}" for problem in problems), "bold red")
    return Group(
        Text(f"\nAccoda demo: {elapsed:.0f} s on {where}\n", "bold"),
        Text(f"{account.enqueued} enqueued = {' + '.join(terms)}", "bold"),
        verdict,
        Text(),
        _facts(account),
        Text("\nTry next", "bold"),
        _next_steps(),
    )


def _facts(account: Account) -> Table:
    stats = account.stats
    waits = ", ".join(f"{level.name} {wait:.2f} s" for level, wait in account.mean_waits.items())
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="bold")
    table.add_row(str(stats.retried), "retried, each time after a longer delay")
    table.add_row(str(stats.buried), f"buried with all attempts used up; {account.revived} revived since")
    table.add_row(str(stats.expired), "expired: nobody settled the lease, so the job came back by itself")
    table.add_row(str(account.refused), "refused: lost. The lease had ended, so the late report changed nothing")
    if waits:
        table.add_row("wait", f"mean: {waits}")
    return table


def _next_steps() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_row("accoda serve", "the dashboard and the API that ran beside it, for your own queues")
    table.add_row("accoda top", "the same in a terminal")
    table.add_row("make test", "the promises shown here, proved")
    table.add_row("src/accoda/demo/work.py", "the worker that you just watched")
    table.add_row("README.md, docs/", "how to use it in your own program")
    return table
