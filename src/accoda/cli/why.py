"""`accoda why ID`: why a job is not running, and when it will."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import StoreOptions, length, present, run, store_options, style, width
from accoda.cli.draw import folded, printable
from accoda.cli.job import id_argument

if TYPE_CHECKING:
    from accoda.admin.why import WhyView

MARKS = {"open": ("✓", "green"), "shut": ("✗", "red"), "note": ("·", None)}


@click.command()
@id_argument
@store_options
def why(store: StoreOptions, id: int) -> None:
    """Say why the job ID is not running, and when it will.

    The first line is the answer. Then what may stand in its way: ✓ does
    not, ✗ does, · is good to know. Then when it may start, and what helps.
    """
    present(store, run(_why(store, id)), _draw)


async def _why(store: StoreOptions, id: int) -> WhyView:
    from accoda.admin.why import why as ask

    async with store.open() as app:
        return await ask(app, id)


def _draw(answer: WhyView) -> None:
    _fold(f"job {answer.id} of {answer.queue} ({answer.state}): {answer.line}", bold=True)
    click.echo()
    wide = max(len(gate.name) for gate in answer.gates)
    for gate in answer.gates:
        mark, colour = MARKS[gate.verdict]
        head = f"  {style(mark, colour)} {gate.name.ljust(wide)}  "
        _fold(gate.text, head, wide + 6)
    facts = [("position", _position(answer)), ("start", _start(answer)), *(("sooner", one) for one in answer.sooner)]
    known = [(name, text) for name, text in facts if text]
    if known:
        click.echo()
    said = ""
    for name, text in known:
        _fold(text, f"  {style(('' if name == said else name).ljust(8), dim=True)}  ", 12)
        said = name


def _position(answer: WhyView) -> str:
    if answer.position is None:
        return ""
    return "1, the next" if answer.position == 1 else f"{answer.position:,}"


def _start(answer: WhyView) -> str:
    from accoda.cli.words import stamp

    start = answer.start
    if start is None:
        return ""
    low, high = length(start.low), length(start.high)
    span = f"in about {length(start.likely)}" + (f" ({low} to {high})" if low != high else "")
    return f"{span}, at {stamp(start.likely_at)}"


def _fold(text: str, head: str = "", indent: int = 0, *, bold: bool = False) -> None:
    """Print a text in lines that fit, under each other beside its head."""
    first, *rest = folded(printable(text), width() - indent) or [""]
    click.echo(head + style(first, bold=bold))
    for line in rest:
        click.echo(" " * indent + style(line, bold=bold))
