"""What commands share: options for the store, opening it, JSON, questions, exit codes.

A command that works on a store:

    @click.command()
    @store_options
    def workers(store: StoreOptions) -> None:
        \"""Who works on this store.\"""
        present(store, run(_workers(store)), _draw)

    def _draw(found: list[WorkerView]) -> None:
        table(["name", Column("queues", cut=True)], [(one.name, one.queues) for one in found])

    async def _workers(store: StoreOptions) -> list[WorkerView]:
        async with store.open() as app:
            return await admin.workers.list(app)

Exit codes are in `accoda.cli.codes`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from accoda.cli.codes import NO, exit_code
from accoda.cli.draw import (
    Column,
    card,
    colourful,
    fitted,
    is_terminal,
    json_text,
    now,
    progress,
    say,
    style,
    surroundings,
    table,
    width,
)
from accoda.cli.words import ago, length, moment, read_length, read_moment, stamp
from accoda.errors import InvalidInput, StorageUnavailable

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from accoda.app import App

__all__ = [
    "Column",
    "StoreOptions",
    "ago",
    "answer_is_no",
    "card",
    "colourful",
    "confirm",
    "echo_json",
    "exit_code",
    "is_terminal",
    "length",
    "moment",
    "now",
    "open_app",
    "present",
    "progress",
    "read_length",
    "read_moment",
    "run",
    "say",
    "shown_url",
    "stamp",
    "store_options",
    "style",
    "table",
    "width",
    "yes_option",
]

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that a store has to answer the first call."""


class StoreOptions(NamedTuple):
    """What `--url`, `--app` and `--json` said."""

    url: str | None = None
    app: str | None = None
    as_json: bool = False

    def open(self, *, create: bool = False, memory: bool = False) -> AbstractAsyncContextManager[App]:
        """`async with store.open() as app:`; see `open_app`."""
        return open_app(self.url, self.app, create=create, memory=memory)


_OPTIONS = (
    click.option("--url", metavar="URL", help="Where the jobs are. Or ACCODA_URL."),
    click.option("--app", metavar="MODULE:APP", help="Whose handlers to know: policies, secrets."),
    click.option("--json", "as_json", is_flag=True, help="For a program to read."),
)

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def store_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--url`, `--app` and `--json` to a command, whose function gets them as `store`."""

    @functools.wraps(command)
    def call(*args: Any, url: str | None = None, app: str | None = None, as_json: bool = False, **given: Any) -> T:
        return command(*args, store=StoreOptions(url, app, as_json), **given)

    for option in reversed(_OPTIONS):
        call = option(call)
    return call


@asynccontextmanager
async def open_app(
    url: str | None, app: str | None = None, *, create: bool = False, memory: bool = False
) -> AsyncIterator[App]:
    """The App of `--app`, or one without handlers, on the store that `--url`, the app or ACCODA_URL name.

    Without any of these it is `accoda.db` in this folder, if it is there. A SQLite file that is not there is an error,
    unless the command may `create` one; and so is `memory://`, of which nothing would be left afterwards.
    """
    from accoda.app import App
    from accoda.connections import Connections

    if app is not None:
        from accoda.cli.loading import load_app

        made = load_app(app)
    else:
        made = App(url)
    chosen = url or (made.url if app is not None else os.environ.get("ACCODA_URL"))
    _check_url(chosen, url or made.url, create, memory)
    clock = surroundings().clock
    if (url is not None and url != made.url) or clock is not None:
        made.url = url or made.url
        made.connections = Connections(made.url, clock or made.connections.clock)
    await _connect(made)
    async with made:
        yield made


async def _connect(app: App) -> None:
    """Say what is wrong with the store before anything else. A worker waits for a server; a person does not, for long.

    Left open by `wait_for`: the loop ends with the command, and cancels what is still on its way to the server.
    """
    import asyncio

    try:
        await asyncio.wait_for(app.connections.get(), PATIENCE)
    except TimeoutError:
        raise StorageUnavailable(f"{shown_url(app.url)} did not answer within {PATIENCE:g} s; is it running?") from None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end."""
    import asyncio

    return asyncio.run(work)


def echo_json(value: object) -> None:
    """Print one JSON document: records with their names on the wire, pages as `items` and `next`."""
    import msgspec

    click.echo(json_text(msgspec.json.encode(value, enc_hook=str)))


def present(store: StoreOptions, value: T, draw: Callable[[T], None]) -> None:
    """Print an answer: as JSON, or drawn for a person."""
    if store.as_json:
        echo_json(value)
    else:
        draw(value)


def confirm(what: str, yes: bool) -> None:
    """Ask before something is destroyed: `confirm("Delete 12 dead jobs of emails", yes)`.

    Where nobody can answer it is wrong use without --yes; who says no ends the command, with nothing changed.
    """
    if yes:
        return
    if not (is_terminal("stdin") and is_terminal("stderr")):
        raise click.UsageError(f"{what}? Add --yes: nobody is here to ask.")
    if not click.confirm(fitted(f"{what}?", "stderr"), default=False, err=True):  # standard output is for the answer
        answer_is_no("Nothing was changed.")


def answer_is_no(why: str) -> NoReturn:
    """Say on standard error why the answer is no, and end with 1."""
    say(why, err=True)
    raise click.exceptions.Exit(NO)


def shown_url(url: str) -> str:
    """A store's URL that may be printed: without its passwords."""
    from accoda.storage.urls import shown_url as without_passwords

    return without_passwords(url)


def _check_url(chosen: str | None, url: str, create: bool, memory: bool) -> None:
    """Refuse a store that the command would find empty, or would make by mistake."""
    from accoda.storage.open import read_url

    parts = read_url(url)
    if parts.scheme == "memory" and not memory:
        raise InvalidInput("url", "memory:// is gone when this command ends; give the URL of a store that stays")
    if parts.scheme != "sqlite":
        return
    from accoda.storage.sqlite.open import file_of

    file = file_of(parts)
    if not file.exists():
        if chosen is None:
            raise InvalidInput("url", "which store? Give --url or set ACCODA_URL, such as sqlite:///jobs.db")
        if not create:
            raise StorageUnavailable(f"there is no file {file}; to make a store there: accoda migrate {url}")
