"""`accoda settings`: every knob, its value, and where the value comes from."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from accoda.cli.common import APP, echo_json, json_option, load_app
from accoda.cli.draw import echo, paragraph, say, style

if TYPE_CHECKING:
    from accoda.runtime.handler import QueueHandlers
    from accoda.settings import Knob, Settings, Value

OTHERS = "*"  # no queue can have this name: it stands for all queues that no source names


class Row(NamedTuple):
    """One line of the answer; `queue` is None for the worker's own."""

    queue: str | None
    knob: Knob
    value: Value


@click.command()
@click.argument("app", required=False, metavar="[MODULE:APP]", envvar=APP)
@click.option("--settings", "files", multiple=True, metavar="FILE", help="A file; may be repeated. Or ACCODA_SETTINGS.")
@click.option("--service", help="The service in front of each path. Or ACCODA_SERVICE; else accoda.")
@click.option("--worker", default="default", show_default=True, help="The worker's name.")
@json_option
@click.option("--check", is_flag=True, help="Exit with 1 if something is wrong with a source.")
def settings(
    app: str | None, files: tuple[str, ...], service: str | None, worker: str, as_json: bool, check: bool
) -> None:
    """Show every setting of a worker and its queues, with its source.

    With MODULE:APP, the queues of its handlers are shown too, and what the handlers say.
    """
    from accoda.settings import Settings

    logging.getLogger("accoda.settings").addHandler(logging.NullHandler())  # reported below, once
    found = Settings.load(files or None, service=service, worker=worker, strict=False)
    problems = list(found.problems)
    rows = _rows(found, load_app(app).handlers if app else {}, problems)
    if as_json:
        echo_json(_document(found, rows, problems))
    else:
        _show(found, rows)
    for problem in problems:
        say(f"Problem: {problem}", err=True)
    if check and problems:
        sys.exit(1)


def _rows(found: Settings, handlers: Mapping[str, QueueHandlers], problems: list[str]) -> list[Row]:
    from accoda.errors import SettingsError
    from accoda.settings.knobs import QUEUE_KNOBS, WORKER_KNOBS

    rows = [Row(None, knob, found.worker(knob.name)) for knob in WORKER_KNOBS.values()]
    numbers = {queue: each.options.number for queue, each in handlers.items()}
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
    """The worker's settings, then those of each queue."""
    titles = {None: f"worker {found.worker_name} of service {found.service}", OTHERS: "every other queue"}
    wide = max(len(row.knob.name) for row in rows) + 4
    for queue in dict.fromkeys(row.queue for row in rows):
        echo("" if queue is None else "\n", style(titles.get(queue, f"queue {queue}"), bold=True))
        for row in (row for row in rows if row.queue == queue):
            default = row.value.source == "default"
            value = style(_text(row).rjust(10), bold=not default, dim=default)
            head = (f"  {row.knob.name}".ljust(wide), value, "  ")
            paragraph(row.value.source, head, wide + 12, bold=not default)


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
