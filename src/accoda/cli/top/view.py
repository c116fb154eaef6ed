"""From a board to the screen. Pure: the same board gives the same picture."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accoda.cli.draw import STATES, printable
from accoda.cli.jobs import in_json
from accoda.cli.top.board import HELP, Board, JobNow, StoreNow, question
from accoda.operations.views import QueueView
from accoda.operations.why import Explanation
from accoda.operations.words import rough, state_word
from accoda.operations.workers import WorkerView, running_by_queue

_BLOCKS = "▁▂▃▄▅▆▇█"
AROUND = 7
"""Lines of the screen that are not rows: headline, totals, blanks, titles, footer."""
COLOURS = {"healthy": "green", "idle": "dim", "failing": "red", "stuck": "bold red"}
"""Of the health of a queue; the other words are yellow."""
FOOTER = {
    "queues": "↑↓ choose  p pause  r replay dead  / show a job  w workers  ? keys  q end",
    "workers": "w or q back  / show a job  ? keys",
    "job": "r run again or now  c cancel  / another job  q back",
    "help": "q back",
}


def screen(board: Board, width: int, height: int) -> RenderableType:
    """The whole screen, for a terminal of that size."""
    if board.store is None:
        return Text(board.trouble or "reading …", "red" if board.trouble else "dim")
    rows = max(1, height - AROUND)
    pages = {
        "queues": lambda: _queues(board, width, rows),
        "workers": lambda: _workers(board.store.workers if board.store else (), rows),
        "job": lambda: _job(board.job) if board.job else Text("no job is shown yet: press /", "dim"),
        "help": _help,
    }
    return Group(_headline(board.store), _totals(board.store), Text(), pages[board.page](), Text(), _last_line(board))


def overview_lines(store: StoreNow, width: int) -> RenderableType:
    """The store, printed without a terminal."""
    board = Board(store=store)
    return Group(_headline(store), _totals(store), Text(), _queues(board, width, len(board.queues), cursor=False))


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as blocks, the highest of them as a full one, nothing as a blank.

    >>> sparkline([0, 1, 2, 4, 7], 4)
    '▂▃▅█'
    """
    shown = list(values[-width:]) if width > 0 else []
    top = max(shown, default=0) or 1
    return "".join(_BLOCKS[round(value / top * 7)] if value else " " for value in shown).rjust(width)


def _headline(store: StoreNow) -> Text:
    over = store.overview
    text = Text.assemble(("accoda top", "bold"), f"  {over.at[11:19]} UTC  ")
    text.append(f"{over.workers:,} {'worker' if over.workers == 1 else 'workers'}")
    text.append(f", {over.running}")
    if not over.workers and over.totals.ready:
        text.append("  no worker runs: accoda worker MODULE:APP", "bold red")
    return text


def _totals(store: StoreNow) -> Text:
    totals = store.overview.totals
    line = Text(no_wrap=True, overflow="ellipsis")
    for name in _counts(store):
        count = getattr(totals, name)
        line.append(f"{state_word(name)} ", "dim")
        line.append(f"{count:,}   ", f"bold {STATES[state_word(name)]}" if count else "dim")
    line.append("done ", "dim")
    line.append(f"{_rate(sum(rate.done for rate in (store.overview.rates or {}).values()))}", "bold")
    return line


def _queues(board: Board, width: int, rows: int, *, cursor: bool = True) -> RenderableType:
    queues = board.queues
    if not queues:
        return Text('No queue yet. The first job makes one:  accoda enqueue emails \'{"to": "anna"}\'', "dim")
    at = min(board.chosen, len(queues) - 1)
    first = max(0, min(at - rows // 2, len(queues) - rows))
    wide = width >= 100
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis", min_width=8)
    assert board.store is not None
    titles = [*map(state_word, _counts(board.store)), "oldest", "done/s"]
    for _ in titles:
        table.add_column(justify="right", no_wrap=True)
    if wide:
        table.add_column(no_wrap=True, width=24)
    table.add_column(no_wrap=True)
    table.add_row("queue", *titles, *([_dim("last 6 minutes")] if wide else []), "health", style="bold")
    for number, queue in enumerate(queues[first : first + rows], first):
        row = _row(queue, board.store, wide)
        table.add_row(*row, style="reverse" if cursor and number == at else None)
    if len(queues) > rows:
        table.add_row(_dim(f"{len(queues):,} queues, {first + 1} to {min(len(queues), first + rows)} shown"))
    return table


def _row(queue: QueueView, store: StoreNow, wide: bool) -> list[RenderableType]:
    rate = (store.overview.rates or {}).get(queue.name)
    counts: list[RenderableType] = [
        Text(f"{getattr(queue, name):,}", STATES[state_word(name)] if getattr(queue, name) else "dim")
        for name in _counts(store)
    ]
    spark: list[RenderableType] = [Text(sparkline(store.sparks.get(queue.name, ()), 24), "cyan")] if wide else []
    oldest = rough(queue.oldest_age) if queue.ready else ""
    word = queue.health.word
    done = "" if rate is None else f"{rate.done:.3g}"
    return [queue.name, *counts, oldest, done, *spark, Text(word, COLOURS.get(word, "yellow"))]


def _counts(store: StoreNow) -> list[str]:
    """The states that have a column: held jobs only where there are any."""
    return ["ready", "taken", "delayed", *(["held"] if store.overview.totals.held else []), "dead"]


def _workers(workers: Sequence[WorkerView], rows: int) -> RenderableType:
    if not workers:
        return Text("No worker runs on this store. Start one:  accoda worker MODULE:APP", "dim")
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=28)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, justify="right")
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_row("worker", "beat", "busy", "running", style="bold")
    for worker in workers[:rows]:
        runs = [
            f"{queue} × {jobs:,} for {rough(longest)}" for queue, (jobs, longest) in running_by_queue(worker).items()
        ]
        what = Text(", ".join(runs)) if runs else _dim("idle")
        table.add_row(
            worker.name,
            f"{rough(worker.beat_age)} ago",
            f"{worker.running}/{worker.slots}",
            Text(worker.problem, "red") if worker.problem else what,
        )
    if len(workers) > rows:
        table.add_row(_dim(f"and {len(workers) - rows:,} more"))
    return table


def _job(shown: JobNow) -> RenderableType:
    job, state = shown.job, state_word(shown.job.state)
    named = "".join(f", {printable(text)}" for text in (job.type, job.name) if text)
    head = Text.assemble((f"job {job.id}  ", "bold"), (state, STATES[state]))
    head.append(f"  in {job.queue}{named}, {job.attempt_text}\n")
    parts: list[RenderableType] = [head]
    if shown.why is not None:
        parts += [Text(printable(shown.why.line), "bold"), _gates(shown.why)]
    elif job.reason:
        parts.append(Text.assemble(("last error  ", "dim"), printable(job.reason.splitlines()[0])))
    payload = printable(in_json(job.payload))[:2000]
    return Group(*parts, Text.assemble(("\npayload  ", "dim"), payload))


def _gates(why: Explanation) -> Table:
    """Texts are folded within their column."""
    table = Table.grid(padding=(0, 1))
    for gate in why.gates:
        mark, colour = {"open": ("✓", "green"), "shut": ("✗", "red")}.get(gate.verdict, ("·", "dim"))
        table.add_row(Text(f" {mark}", colour), Text(state_word(gate.name), "dim"), Text(printable(gate.text)))
    for hint in why.sooner:
        table.add_row("", Text("sooner", "dim"), Text(printable(hint)))
    return table


def _help() -> RenderableType:
    table = Table.grid(padding=(0, 3))
    for keys, what in HELP:
        table.add_row(Text(keys, "bold"), what)
    return table


def _last_line(board: Board) -> Text:
    if board.asked is not None:
        return Text(question(board.asked, board), "bold yellow")
    if board.typed is not None:
        return Text.assemble(("Which job? ", "bold yellow"), board.typed, ("▏", "blink"), ("  Enter, or Esc", "dim"))
    if board.trouble:
        return Text(printable(board.trouble), "bold red", overflow="ellipsis", no_wrap=True)
    if board.said:
        return Text(printable(board.said), "bold", overflow="ellipsis", no_wrap=True)
    return _dim(FOOTER[board.page])


def _rate(jobs: float) -> str:
    return f"{jobs:,.0f} a second" if jobs >= 10 else f"{jobs:.2g} a second" if jobs else "none lately"


def _dim(text: str) -> Text:
    return Text(text, "dim", no_wrap=True, overflow="ellipsis")
