"""`accoda why ID`: why a job is not running, and when it will."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import StoreOptions, lazily, present, store_options
from accoda.cli.draw import echo, paragraph, style
from accoda.cli.job import id_argument
from accoda.cli.words import stamp
from accoda.operations.words import state_word

if TYPE_CHECKING:
    from accoda.operations import why as operations
    from accoda.operations.why import Explanation
else:
    operations = lazily("accoda.operations.why")

MARKS = {"open": ("✓", "green"), "shut": ("✗", "red"), "note": ("·", None)}


@click.command()
@id_argument
@store_options
def why(store: StoreOptions, id: int) -> None:
    """Say why the job ID is not running, and when it will.

    The first line is the answer. Then what may block it: ✓ OK, ✗ blocked,
    · info. Then when it is likely to start, and what would help.
    """
    present(store, store.ask(lambda app: operations.why(app, id)), _draw)


def _draw(answer: Explanation) -> None:
    paragraph(f"job {answer.id} of {answer.queue} ({state_word(answer.state)}): {answer.line}", bold=True)
    echo()
    names = [state_word(gate.name) for gate in answer.gates]
    wide = max(map(len, names))
    for name, gate in zip(names, answer.gates, strict=True):
        mark, colour = MARKS[gate.verdict]
        head = ("  ", style(mark, colour), f" {name.ljust(wide)}  ")
        paragraph(gate.text, head, wide + 6)
    facts = [("position", _position(answer)), ("start", _start(answer)), *(("sooner", one) for one in answer.sooner)]
    known = [(name, text) for name, text in facts if text]
    if known:
        echo()
    said = ""
    for name, text in known:
        paragraph(text, ("  ", style(("" if name == said else name).ljust(8), dim=True), "  "), 12)
        said = name


def _position(answer: Explanation) -> str:
    if answer.position is None:
        return ""
    if answer.ahead_is_more:
        return f"{answer.position:,} or later"
    return "1, the next" if answer.position == 1 else f"{answer.position:,}"


def _start(answer: Explanation) -> str:
    if answer.start is None:
        return ""
    moment = answer.start.low_at if answer.ahead_is_more else answer.start.likely_at
    return f"{answer.start.text}, at {stamp(moment)}{' or later' if answer.ahead_is_more else ''}"
