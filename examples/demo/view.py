"""From a snapshot to the screen. Pure: the same snapshot gives the same picture."""

from __future__ import annotations

from collections.abc import Sequence

from examples.demo.event_log import Event, What
from examples.demo.snapshot import Snapshot
from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from accoda.priority import Priority

LEVEL_STYLES = {
    Priority.CRITICAL: "bold red",
    Priority.HIGH: "yellow",
    Priority.NORMAL: "cyan",
    Priority.LOW: "blue",
}
WHAT_STYLES: dict[What, str] = {
    "done": "green",
    "retried": "yellow",
    "buried": "red",
    "crashed": "bold magenta",
    "refused": "magenta",
    "revived": "cyan",
    "removed": "dim",
}
_BLOCKS = "▁▂▃▄▅▆▇█"
_FIXED_LINES = 16  # everything but the rows of the two lists of jobs


def board(snapshot: Snapshot, width: int, height: int, address: str = "") -> RenderableType:
    """The whole screen, for a terminal of that size; `address` is where the API is."""
    rows = max(2, height - _FIXED_LINES)
    notable = max(1, rows * 2 // 5)
    stats = snapshot.stats
    now = {name: getattr(stats, name) for name in ("ready", "delayed", "taken", "dead")}
    since = {name: getattr(stats, name) for name in ("done", "retried", "buried", "expired")}
    since = {"enqueued": snapshot.enqueued, **since, "refused": snapshot.refused}
    left, half = width * 2 // 5, width // 2
    return Group(
        _headline(snapshot, address),
        _beside(left, _counters(now, "In the queue now"), _counters(since, "Since the start")),
        _beside(half, _levels(snapshot, half - 4), _trends(snapshot, width - half - 4)),
        _panel(_events(snapshot.last, rows - notable, heading=True), "Last jobs"),
        _panel(_events(snapshot.notable, notable), "Worth a look", "Ctrl-C ends the demo and adds it all up"),
    )


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as blocks, the highest of them as a full one.

    >>> sparkline([0, 1, 2, 4, 7], 4)
    '▂▃▅█'
    """
    shown = values[-width:] if width > 0 else []
    top = max(shown, default=0) or 1
    return "".join(_BLOCKS[round(value / top * (len(_BLOCKS) - 1))] for value in shown)


def progress_line(snapshot: Snapshot) -> str:
    """One line for a log, where there is no terminal to draw on."""
    names = ("ready", "delayed", "taken", "dead", "done", "retried", "expired")
    counts = "  ".join(f"{name} {getattr(snapshot.stats, name)}" for name in names)
    return f"{snapshot.elapsed:4.0f} s  {counts}"


def _headline(snapshot: Snapshot, address: str) -> Table:
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    line.add_column(justify="right", no_wrap=True)
    minutes, seconds = divmod(int(snapshot.elapsed), 60)
    about = f"dashboard at {address}/" if address else "one SQLite file, one producer, three workers"
    text = Text.assemble(("Accoda demo", "bold"), (f"  {about}", "dim"))
    line.add_row(text, f"{snapshot.phase} {minutes}:{seconds:02}")
    return line


def _beside(width: int, left: RenderableType, right: RenderableType) -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(width=width)
    grid.add_column(ratio=1)
    grid.add_row(left, right)
    return grid


def _counters(counts: dict[str, int], title: str) -> Panel:
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    for _ in counts:
        grid.add_column(justify="right", no_wrap=True)
    grid.add_row(*(Text(name, "dim") for name in counts))
    grid.add_row(*(Text(str(value), "bold") for value in counts.values()))
    return _panel(grid, title)


def _levels(snapshot: Snapshot, width: int) -> Panel:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=8)
    table.add_column(justify="right", width=3)
    room = max(1, width - 8 - 3 - 9 - 3)
    table.add_column(width=room)
    table.add_column(justify="right", width=9)
    top = max(snapshot.ready.values(), default=0) or 1
    for level in Priority:
        count = snapshot.ready.get(level, 0)
        # One block for each job as long as there is room, so that a short queue does not look like a full one.
        length = count if top <= room else -(-count * room // top)
        wait = snapshot.mean_waits.get(level)
        bar = Text("█" * length, LEVEL_STYLES[level])
        table.add_row(Text(level.name, LEVEL_STYLES[level]), str(count), bar, "" if wait is None else f"{wait:.2f} s")
    return _panel(table, "Ready by priority · mean wait")


def _trends(snapshot: Snapshot, width: int) -> Panel:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=6)
    room = max(1, width - 6 - 1)
    rates, depths = snapshot.rates, snapshot.depths
    table.add_row("done", Text(sparkline(rates, room), "green"))
    table.add_row("", Text(f"{rates[-1]:.1f} each second" if rates else "counting", "dim"))
    table.add_row("ready", Text(sparkline(depths, room), "cyan"))
    table.add_row("", Text(f"{depths[-1]} waiting" if depths else "counting", "dim"))
    return _panel(table, "Second by second")


def _events(events: Sequence[Event], rows: int, *, heading: bool = False) -> Table:
    table = Table(box=None, expand=True, show_header=heading, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("id", justify="right", width=5)
    table.add_column("job", width=14, no_wrap=True)
    table.add_column("priority", width=8)
    table.add_column("rank", justify="right", width=4)
    table.add_column("attempts", justify="right", width=8)
    table.add_column("worker", width=6)
    table.add_column("outcome", ratio=1, no_wrap=True, overflow="ellipsis")
    for event in list(events)[: -rows - 1 : -1]:
        level = Text(event.priority.name, LEVEL_STYLES[event.priority])
        outcome = Text(outcome_text(event), WHAT_STYLES[event.what])
        table.add_row(str(event.id), event.kind, level, f"{event.rank:g}", str(event.attempts), event.worker, outcome)
    for _ in range(rows - len(events)):
        table.add_row()  # the panels keep their height, so that nothing jumps
    return table


def outcome_text(event: Event) -> str:
    """The outcome in words: `retried in 0.5 s: no answer`, `refused: lost`."""
    joint = " " if event.what == "retried" else ": "
    return event.what + (joint + event.note if event.note else "")


def _panel(content: RenderableType, title: str, subtitle: str | None = None) -> Panel:
    return Panel(content, box=ROUNDED, title=title, title_align="left", subtitle=subtitle, border_style="dim")
