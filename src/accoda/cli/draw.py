"""What is printed on a terminal: tables, cards, bars. Without a terminal it is plain text with the same columns.

Colours only if a terminal can show them and NO_COLOR does not forbid it. Only the bars import rich.

Names, payloads and errors are other people's text, and a terminal obeys what is in it. So everything is printed by
`echo`, `ask` and `console`, which let no control character through but line ends and their own colours; the linter
keeps the other modules from printing in any other way.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from unicodedata import category, east_asian_width

import click

if TYPE_CHECKING:
    from rich.console import Console

    from accoda.clock import Clock

GAP = 2
LEAST = 8
"""The least width of a column that may be cut."""


class Surroundings(NamedTuple):
    """What a command knows about its surroundings. Tests and the generator of the docs give their own as `ctx.obj`."""

    clock: Clock | None = None
    width: int | None = None
    terminal: bool | None = None


class Column(NamedTuple):
    """A column. Ids and counts are never cut; one that may be `cut` shrinks if the line gets too long."""

    title: str
    cut: bool = False
    right: bool = False


def surroundings() -> Surroundings:
    """Those of the running command."""
    context = click.get_current_context(silent=True)
    return (context.find_object(Surroundings) if context else None) or Surroundings()


def now() -> int:
    """The present moment in milliseconds."""
    from accoda.clock import SystemClock

    return (surroundings().clock or SystemClock()).now()


def is_terminal(stream: Literal["stdin", "stdout", "stderr"] = "stdout") -> bool:
    """Whether a stream is a terminal."""
    told = surroundings().terminal
    if told is not None:
        return told
    there = getattr(sys, stream)  # None where it was closed before the start (`>&-`)
    return there is not None and bool(there.isatty())


def width() -> int:
    """How long a line may be: COLUMNS, or the terminal's width, or 80."""
    told = surroundings().width
    return told if told is not None else max(40, shutil.get_terminal_size((80, 24)).columns)


def colourful() -> bool:
    """Whether colours may be used on standard output."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Styled(NamedTuple):
    """A part of a line with a colour, if colours are shown. Escapes in a string would not be printed as such."""

    text: str
    colour: str | None = None
    bold: bool = False
    dim: bool = False


Part = str | Styled


def style(text: str, colour: str | None = None, *, bold: bool = False, dim: bool = False) -> Styled:
    """The text with colours, for `echo`."""
    return Styled(text, colour, bold, dim)


def echo(*parts: Part, err: bool = False, nl: bool = True) -> None:
    """Print the parts after each other, without what a terminal would obey."""
    click.echo("".join(map(_shown, parts)), err=err, nl=nl)


def _shown(part: Part) -> str:
    if isinstance(part, str):
        return printable_lines(part)
    text, colour, bold, dim = part
    text = printable_lines(text)
    return click.style(text, fg=colour, bold=bold or None, dim=dim or None) if colourful() else text


def ask(question: str) -> bool:
    """Whether the user says yes. On standard error: standard output is for the answer."""
    return click.confirm(fitted(question, "stderr"), default=False, err=True)


def console(**options: Any) -> Console:
    """What `accoda top` and the bars print on. It lets through what rich itself controls the terminal with."""
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, *args: Any, **given: Any) -> Iterator[Segment]:
            for part in super().render(*args, **given):
                yield part if part.control else Segment(printable_lines(part.text), part.style)

    return SafeConsole(**options)


STATES = {
    "ready": "green",
    "running": "cyan",
    "delayed": "yellow",
    "held": "bright_yellow",
    "dead": "red",
    "done": "blue",
    "cancelled": "magenta",
    "failed": "red",
    "expired": "magenta",
    "removed": "magenta",
    "started": "cyan",
}


def table(columns: Sequence[str | Column], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their titles, in no more than the terminal's width: long texts end in …, ids are never cut."""
    heads = [Column(column) if isinstance(column, str) else column for column in columns]
    texts = [[one_line(cell) for cell in row] for row in rows]
    widths = _fit(heads, texts, width())
    titles = [_pad(head.title, wide, head.right) for head, wide in zip(heads, widths, strict=True)]
    echo(style((" " * GAP).join(titles).rstrip(), bold=True))
    for row in texts:
        while row and not row[-1]:
            row.pop()
        parts: list[Part] = []
        for at, (cell, head, wide) in enumerate(zip(row, heads, widths, strict=False), 1):
            padded = _pad(_cut(cell, wide), wide, head.right)
            parts += [*_coloured(padded if at < len(row) else padded.rstrip(), cell), " " * GAP]
        echo(*parts[:-1])


def card(title: str, facts: Iterable[tuple[str, object]]) -> None:
    """Print what is known of one thing: a line for each fact, long ones folded."""
    known = [(name, str(value)) for name, value in facts if value not in (None, "")]
    indent = max((len(name) for name, _ in known), default=0) + GAP + 2
    for line in folded(printable(title), width()):
        echo(style(line, bold=True))
    for name, value in known:
        lines = [part for line in value.splitlines() or [""] for part in folded(printable(line), width() - indent)]
        echo(style(f"  {name}".ljust(indent), dim=True), *_coloured(lines[0], lines[0]))
        for line in lines[1:]:
            echo(" " * indent + line)


def paragraph(text: str, head: Sequence[Part] = (), indent: int = 0, *, bold: bool = False) -> None:
    """Print a text in lines that fit, under each other beside its head, which is `indent` columns wide."""
    first, *rest = folded(printable(text), max(20, width() - indent))
    echo(*head, style(first, bold=bold))
    for line in rest:
        echo(" " * indent, style(line, bold=bold))


def say(text: str, *, err: bool = False) -> None:
    """Print words for a person, in lines that fit."""
    echo(fitted(text, "stderr" if err else "stdout"), err=err)


def fitted(text: str, stream: Literal["stdout", "stderr"] = "stdout") -> str:
    """A text in lines that fit, broken only at blanks: a URL or a token stays whole.

    In a pipe it stays one line, for a program or a log to find, unless COLUMNS says how long a line may be.
    """
    text = printable_lines(text)
    if not is_terminal(stream) and not os.environ.get("COLUMNS"):
        return text
    return "\n".join(part for line in text.splitlines() for part in folded(line, width(), whole=True))


@contextmanager
def progress(label: str, total: int | None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error: call what it gives with the number done so far.

    There is none with `quiet` (give it --json) or without a terminal.
    """
    if quiet or not is_terminal("stderr"):
        yield lambda count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = console(stderr=True, width=width(), force_terminal=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=shown, transient=True) as bars:
        bar = bars.add_task(label, total=total)
        yield lambda count: bars.update(bar, completed=count)


def bar(share: float, wide: int) -> str:
    """A share of 1 as a bar of so many columns.

    >>> bar(0.5, 6)
    '███···'
    """
    full = round(max(0.0, min(1.0, share)) * wide)
    return "█" * full + "·" * (wide - full)


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes.

    >>> columns_of("né"), columns_of("列")
    (2, 2)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if category(char) in ("Mn", "Me", "Cf") else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def printable(text: str) -> str:
    """Without what could move the cursor, ring, or colour: a payload is a user's text."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def json_text(document: bytes) -> str:
    """A JSON document for people and programs: the same to a parser, and harmless to a terminal."""
    import msgspec

    from accoda.runtime.logs.text import safe_json

    return safe_json(msgspec.json.format(document, indent=2).decode("utf-8", "replace"))


def one_line(value: object) -> str:
    """A value as a cell: None is nothing, line ends and tabs are blanks."""
    text = "" if value is None else str(value)
    return printable(" ".join(text.split())) if not text.isprintable() else text


def _coloured(text: str, cell: str) -> tuple[Part, ...]:
    """States have colours."""
    if cell not in STATES:
        return (text,)
    before, found, after = text.partition(cell)
    return before, style(found, STATES[cell]), after


def _fit(heads: Sequence[Column], rows: Sequence[Sequence[str]], wide: int) -> list[int]:
    """The widths: as wide as the widest cell, except for columns that may be cut, of which the widest shrinks first."""
    widths = [max([columns_of(head.title), *(columns_of(row[i]) for row in rows)]) for i, head in enumerate(heads)]
    over = sum(widths) + GAP * (len(heads) - 1) - wide
    while over > 0:
        soft = [i for i, head in enumerate(heads) if head.cut and widths[i] > max(LEAST, len(head.title))]
        if not soft:
            break
        widths[max(soft, key=widths.__getitem__)] -= 1
        over -= 1
    return widths


def _cut(text: str, wide: int) -> str:
    if columns_of(text) <= wide:
        return text
    kept, used = "", 1
    for char in text:
        used += columns_of(char)
        if used > wide:
            break
        kept += char
    return f"{kept}…"


def _pad(text: str, wide: int, right: bool) -> str:
    blanks = " " * (wide - columns_of(text))
    return blanks + text if right else text + blanks


def folded(text: str, wide: int, *, whole: bool = False) -> list[str]:
    """A line in pieces that fit, broken at blanks if there are any; blanks at its beginning stay.

    A word that is longer than a line is cut, unless words are to stay `whole`.
    """
    indent = text[: len(text) - len(text.lstrip(" "))]
    pieces, piece = [], indent
    for word in text.lstrip(" ").split(" "):
        if piece != indent and columns_of(piece) + 1 + columns_of(word) > wide:
            pieces.append(piece)
            piece = indent
        piece += word if piece == indent else f" {word}"
        while columns_of(piece) > wide and not whole:
            head = _cut(piece, wide + 1)[:-1]
            pieces.append(head)
            piece = indent + piece[len(head) :] if len(indent) < wide // 2 else piece[len(head) :]
    return [*pieces, piece]
