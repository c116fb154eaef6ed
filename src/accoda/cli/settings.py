"""`accoda settings`: every knob, its value, and where the value comes from."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from accoda.cli.draw import say

if TYPE_CHECKING:
    from accoda.settings import Knob, Settings, Value

OTHERS = "*"  # no queue can have this name: what holds for it holds for all that no source names


class Row(NamedTuple):
    """One line of the answer; `queue` is None for the worker's own."""

    queue: str | None
    knob: Knob
    value: Value


@click.command()
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("--settings", "files", multiple=True, metavar="FILE", help="A file; may be repeated. Or ACCODA_SETTINGS.")
@click.option("--service", help="The service in front of each path. Or ACCODA_SERVICE; else accoda.")
@click.option("--worker", default="default", show_default=True, help="The worker's name.")
@click.option("--json", "as_json", is_flag=True, help="For a program to read.")
@click.option("--check", is_flag=True, help="Exit with 1 if something is wrong with a source.")
def settings(
    app: str | None, files: tuple[str, ...], service: str | None, worker: str, as_json: bool, check: bool
) -> None:
    """Show every setting of a worker and its queues, with its source.

    With MODULE:APP, the queues of its handlers are shown too, and what the handlers say.
    """
    from accoda.cli.loading import load_app
    from accoda.settings import Settings

    logging.getLogger("accoda.settings").addHandler(logging.NullHandler())  # told below, once
    found, failed = Settings.survey(files or None, service=service, worker=worker)
    problems = list(dict.fromkeys((*failed, *found.problems)))
    rows = _rows(found, load_app(app).handlers if app else {}, problems)
    if as_json:
        click.echo(json.dumps(_document(found, rows, problems), indent=2, ensure_ascii=False))
    else:
        _show(found, rows)
    for problem in problems:
        say(f"Problem: {problem}", err=True)
    if check and problems:
        sys.exit(1)


def _rows(found: Settings, handlers: Mapping[str, Any], problems: list[str]) -> list[Row]:
    from accoda.errors import SettingsError
    from accoda.settings.knobs import QUEUE_KNOBS, WORKER_KNOBS

    rows = [Row(None, knob, found.worker(knob.name)) for knob in WORKER_KNOBS.values()]
    numbers = {queue: getattr(handler.options, "number", None) for queue, handler in handlers.items()}
    # A queue that a source knows by its number and a handler by its name is one queue.
    named = [queue for queue in found.current.queues() if queue not in {str(number) for number in numbers.values()}]
    for queue in (*sorted({*named, *handlers}), OTHERS):
        options = handlers[queue].options if queue in handlers else None
        for knob in QUEUE_KNOBS.values():
            code = getattr(options, knob.option, None) if knob.option else None
            try:
                rows.append(Row(queue, knob, found.queue(queue, knob.name, code, numbers.get(queue))))
            except SettingsError as error:  # what the handler says cannot be used
                problems += error.problems
                rows.append(Row(queue, knob, found.queue(queue, knob.name, None, numbers.get(queue))))
    return rows


def _document(found: Settings, rows: list[Row], problems: list[str]) -> dict[str, object]:
    return {
        "service": found.service,
        "worker": found.worker_name,
        "files": found.files,
        "settings": [
            {
                "queue": row.queue,
                "setting": row.knob.name,
                "value": row.value.value,
                "unit": row.knob.unit,
                "source": row.value.source,
            }
            for row in rows
        ],
        "problems": problems,
    }


def _show(found: Settings, rows: list[Row]) -> None:
    """One table for the worker, one for each queue; columns stand in the same place in all of them."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    titles = {None: f"worker {found.worker_name} of service {found.service}", OTHERS: "every other queue"}
    for queue in dict.fromkeys(row.queue for row in rows):
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(width=max(len(row.knob.name) for row in rows) + 2)
        table.add_column(width=10, justify="right", overflow="fold")
        table.add_column(overflow="fold")
        for row in rows:
            if row.queue == queue:
                style = "dim" if row.value.source == "default" else "bold"
                table.add_row(f"  {row.knob.name}", Text(_text(row), style), Text(row.value.source, style))
        if queue is not None:
            console.print()
        console.print(Text(titles.get(queue, f"queue {queue}"), "bold"))
        console.print(table)


def _text(row: Row) -> str:
    """The value for a person.

    >>> from accoda.settings import Value
    >>> from accoda.settings.knobs import QUEUE_KNOBS
    >>> _text(Row("emails", QUEUE_KNOBS["visibility_timeout"], Value(60.0, "default")))
    '60 s'
    """
    value = row.value.value
    if value is None:
        return "none"
    return f"{value:.10g} {row.knob.unit}".rstrip()
