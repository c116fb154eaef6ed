"""`accoda enqueue`: add one job, or one for each line of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from accoda.cli.common import StoreOptions, echo_json, lazily, store_options
from accoda.cli.completion import complete_queues
from accoda.cli.draw import echo, progress, say
from accoda.cli.job import wait_for
from accoda.cli.jobs import level
from accoda.cli.words import read_length, read_moment
from accoda.errors import InvalidInput, StorageError

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.model import Enqueued
    from accoda.operations import jobs as operations
    from accoda.operations.new_jobs import NewJobRequest
else:
    operations = lazily("accoda.operations.jobs")

AT_ONCE = 1000
"""Lines that are stored together, all or none."""

EXAMPLE = """'{"to": "anna"}' or '"text"'"""

KEPT = 300.0
"""Seconds that a job is kept with --wait, unless --keep-for says otherwise."""


@click.command()
@click.argument("queue", shell_complete=complete_queues)
@click.argument("payload", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the payload here; - is standard input.")
@click.option("--lines", is_flag=True, help="A job for each line of the file.")
@click.option("-t", "--type", metavar="TYPE", help="Which handler of the queue, if it has several.")
@click.option("-p", "--priority", type=level, metavar="LEVEL", help="CRITICAL, HIGH, NORMAL or LOW.")
@click.option("--delay", metavar="LENGTH", help="Start after 90, 5m, 1h30m, 2d.")
@click.option("--at", metavar="MOMENT", help="Start at 2030-01-31T09:00:00Z.")
@click.option("--key", metavar="TEXT", help="One of a kind in its queue.")
@click.option(
    "--on-duplicate",
    type=click.Choice(["keep", "rerank", "replace"]),
    metavar="WHAT",
    help="keep (default), rerank or replace.",
)
@click.option("--cost", type=click.IntRange(0, 2**53), metavar="N", help="What it takes of its budget.")
@click.option("--keep-for", metavar="LENGTH", help="Keep its result so long.")
@click.option("--lane", metavar="TEXT", help="Whom it belongs to, such as a customer.")
@click.option("--name", metavar="TEXT", help="What people call it.")
@click.option("--header", "headers", multiple=True, metavar="NAME=TEXT", help="Send this along; may be repeated.")
@click.option("--max-retries", type=click.IntRange(0, 1_000_000), metavar="N", help="Bury it after so many.")
@click.option("--webhook", metavar="URL", help="Call this when it has ended.")
@click.option("--secret", multiple=True, metavar="FIELD", help="Never show this of its payload; may be repeated.")
@click.option("--wait", is_flag=True, help="Wait, print its result; exit 1: it failed.")
@store_options
def enqueue(store: StoreOptions, queue: str, payload: str | None, **given: Any) -> None:
    """Add a job with the JSON text PAYLOAD to QUEUE.

    \b
    accoda enqueue emails '{"to": "anna@example.com"}' --delay 5m
    accoda enqueue emails --lines --file addresses.jsonl
    """
    options = _options(queue, given)
    with _source(payload, given["file"]) as source:
        if given["lines"]:
            lines = _lines_of(source, given)
            store.ask(lambda app: _many(app, options, lines, store.as_json), create=True)
        else:
            text = payload if source is None else source.read()
            if text is None:
                raise InvalidInput("payload", f"is missing; write {EXAMPLE}, or null for a job without one")
            value = read_json(text)
            store.ask(lambda app: _one(app, options, value, given["wait"], store.as_json), create=True)


def read_json(text: str | bytes) -> Any:
    """The value that a JSON text stands for."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:  # msgspec's and Unicode's are ValueErrors
        why = str(error).removeprefix("JSON is malformed: ")
        raise InvalidInput("payload", f"is not JSON: {why}; write {EXAMPLE}") from None


def _options(queue: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options of each job, as the request names them."""
    from accoda.operations.moments import rfc3339

    delay, at, keep_for = given["delay"], given["at"], given["keep_for"]
    if delay is not None and at is not None:
        raise InvalidInput("at", "give either --delay or --at, not both")
    if given["on_duplicate"] is not None and given["key"] is None:
        raise InvalidInput("on-duplicate", "needs a --key: jobs are kept or replaced by their key")
    kept = read_length("keep-for", keep_for) if keep_for is not None else KEPT if given["wait"] else None
    return {name: given[name] for name in _SAME} | {
        "queue": queue,
        "delay": None if delay is None else read_length("delay", delay),
        "scheduled_at": None if at is None else rfc3339(read_moment("at", at)),
        "keep_for": kept,
        "headers": _headers(given["headers"]),
        "webhook_url": given["webhook"],
        "secret_fields": given["secret"],
    }


def _headers(given: tuple[str, ...]) -> dict[str, str] | None:
    pairs = [text.partition("=") for text in given]
    for (name, sign, _), text in zip(pairs, given, strict=True):
        if not name or not sign:
            raise InvalidInput("header", f"must look like tenant=acme, not {text!r:.60}")
    return {name: text for name, _, text in pairs} or None


def _lines_of(source: IO[bytes] | None, given: dict[str, Any]) -> Iterable[bytes]:
    if source is None:
        raise InvalidInput("lines", "needs a file: --file jobs.jsonl, or --file - for standard input")
    for option in ("wait", "key"):
        if given[option]:
            raise InvalidInput(option, "is for one job, not for many lines")
    return source


@contextmanager
def _source(payload: str | None, file: str | None) -> Iterator[IO[bytes] | None]:
    """The file to read, if there is one: `--file`, or `-` in the payload's place."""
    if payload is not None and payload != "-" and file is not None:
        raise InvalidInput("payload", "give either a payload or --file, not both")
    name = "-" if payload == "-" else file
    if name is None:
        yield None
    elif name == "-":
        if sys.stdin is None:
            raise InvalidInput("payload", "is to be read from standard input, which is closed")
        yield sys.stdin.buffer
    else:
        try:
            opened = Path(name).open("rb")  # noqa: SIM115  # closed below
        except OSError as error:
            raise InvalidInput("file", f"{name} cannot be read: {error.strerror}") from error
        with opened:
            yield opened


async def _one(app: App, options: dict[str, Any], payload: Any, wait: bool, as_json: bool) -> None:
    from accoda.operations.new_jobs import NewJobRequest

    try:
        enqueued = (await operations.create(app, [NewJobRequest(payload=payload, **options)]))[0]
    except InvalidInput as error:
        _, field, text = _parts(error)
        raise InvalidInput(field, text) from error
    await _warn(app, options)
    if wait:
        echo_json(await wait_for(app, enqueued.id, None))
    elif as_json:
        echo_json(enqueued)
    else:
        say(_in_words(enqueued, options["queue"]))


async def _warn(app: App, options: dict[str, Any]) -> None:
    """Say on standard error if no running worker would take the jobs; they are stored all the same."""
    from accoda.operations.served import warning_of

    if found := await warning_of(app, [(options["queue"], options["type"])]):
        say(f"Warning: {found}", err=True)


def _in_words(enqueued: Enqueued, queue: str) -> str:
    if enqueued.what == "created":
        return f"Job {enqueued.id} is in {queue}."
    return f"Job {enqueued.id} of {queue} has this key already; it was {enqueued.what}."


async def _many(app: App, options: dict[str, Any], source: Iterable[bytes], as_json: bool) -> None:
    """Store the lines in batches; if one is wrong, say which, and what was stored before it."""
    import asyncio

    # The lines that have something in them, each with its number in the file.
    lines = ((number, line) for number, line in enumerate(source, 1) if line.strip())
    stored = 0
    with progress("Storing", None, quiet=as_json) as so_far:
        while batch := list(islice(lines, AT_ONCE)):
            try:
                await operations.create(app, _requests(batch, options), batch=True)
            except InvalidInput as error:
                raise _at_line(error, batch, stored) from error
            except (StorageError, asyncio.CancelledError):
                echo(f"The {stored:,} jobs before line {batch[0][0]:,} are stored.", err=True)
                raise
            stored += len(batch)
            so_far(stored)
    if stored:
        await _warn(app, options)
    if as_json:
        echo_json({"stored": stored})
    else:
        say(f"{stored:,} {'job is' if stored == 1 else 'jobs are'} in {options['queue']}.")


def _requests(batch: list[tuple[int, bytes]], options: dict[str, Any]) -> list[NewJobRequest]:
    from accoda.operations.new_jobs import NewJobRequest

    requests = []
    for place, (_, line) in enumerate(batch):
        try:
            requests.append(NewJobRequest(payload=read_json(line), **options))
        except InvalidInput as error:
            raise InvalidInput(f"jobs[{place}].payload", str(error).removeprefix("payload: ")) from error
    return requests


def _at_line(error: InvalidInput, batch: list[tuple[int, bytes]], stored: int) -> InvalidInput:
    """The error with the number of its line, and what is stored by now."""
    place, field, text = _parts(error)
    line = batch[place][0] if place is not None and place < len(batch) else batch[0][0]
    kept = f"the {stored:,} jobs before line {batch[0][0]:,} are stored, no others" if stored else "nothing is stored"
    return InvalidInput(f"line {line:,}", f"{field}: {text}; {kept}")


def _parts(error: InvalidInput) -> tuple[int | None, str, str]:
    """The place of the job, the field, and the problem: of `jobs[3].priority: …`."""
    text = str(error).removeprefix(f"{error.field}: ")
    head, _, field = error.field.rpartition("].")
    place = int(head.removeprefix("jobs[")) if head.startswith("jobs[") else None
    return place, _TYPED.get(field, field), text


_SAME = ("type", "priority", "key", "on_duplicate", "cost", "lane", "name", "max_retries")
_TYPED = {
    "headers": "header",
    "keepFor": "keep-for",
    "maxRetries": "max-retries",
    "onDuplicate": "on-duplicate",
    "scheduledAt": "at",
    "secretFields": "secret",
    "webhookUrl": "webhook",
}
