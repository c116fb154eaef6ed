"""`accoda queues`: what is in them; pause, resume, purge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from accoda.cli.common import (
    Column,
    StoreOptions,
    answer_is_no,
    card,
    confirm,
    echo_json,
    length,
    now,
    present,
    progress,
    read_length,
    run,
    say,
    store_options,
    table,
    yes_option,
)
from accoda.cli.completion import complete_queues
from accoda.cli.groups import Nouns
from accoda.cli.jobs import STATES
from accoda.cli.known import known
from accoda.cli.words import moment as at

if TYPE_CHECKING:
    from accoda.admin.views import QueueView


@click.group(cls=Nouns, noun="NAME", complete=complete_queues)
def queues() -> None:
    """List queues; show, pause, resume or purge the queue NAME."""


@queues.command("list", cls=click.Command)
@click.option("--all", "system", is_flag=True, help="Accoda's own queues too.")
@store_options
def list_(store: StoreOptions, system: bool) -> None:
    """List all queues."""

    async def ask() -> list[QueueView]:
        from accoda.admin import queues as admin

        async with store.open() as app:
            return await admin.list(app, system=system)

    present(store, run(ask()), _draw)


@queues.command()
@click.argument("name")
@store_options
def show(store: StoreOptions, name: str) -> None:
    """Show one queue."""
    present(store, run(_look(store, name)), _card)


@queues.command()
@click.argument("name")
@click.option("--for", "length_", metavar="LENGTH", help="Such as 30m; else until it is resumed.")
@click.option("--note", metavar="TEXT", default="", help="Why; accoda why tells it.")
@store_options
def pause(store: StoreOptions, name: str, length_: str | None, note: str) -> None:
    """Hand out none of its jobs; running ones go on."""
    seconds = None if length_ is None else read_length("for", length_)

    async def do() -> QueueView:
        from accoda.admin import queues as admin

        async with store.open() as app:
            await known(app, name)
            return await admin.pause(app, name, seconds, _somebody(), note)

    present(store, run(do()), _say)


@queues.command()
@click.argument("name")
@store_options
def resume(store: StoreOptions, name: str) -> None:
    """End a pause."""

    async def do() -> QueueView:
        from accoda.admin import queues as admin

        async with store.open() as app:
            await known(app, name)
            return await admin.resume(app, name)

    present(store, run(do()), _say)


@queues.command()
@click.argument("name")
@click.option(
    "-s",
    "--state",
    type=click.Choice(STATES),
    metavar="STATE",
    required=True,
    help="ready, delayed, taken, dead or done.",
)
@click.option("--older-than", metavar="LENGTH", help="Only those older than, such as 7d.")
@yes_option
@store_options
def purge(store: StoreOptions, name: str, state: str, older_than: str | None, yes: bool) -> None:
    """Delete its jobs in a state, for ever."""
    seconds = None if older_than is None else read_length("older-than", older_than)
    queue = run(_look(store, name))
    count = getattr(queue, state, 0) if state != "done" else None  # of done jobs the store counts all that ever were
    if count == 0:
        answer_is_no(f"No job of {name} is {state}.")
    older = f" older than {length(seconds)}" if seconds is not None else ""
    confirm(f"Delete {'all' if count is None else f'up to {count:,}'} {state} jobs of {name}{older}", yes)
    gone = run(_purge(store, name, state, seconds, count))
    if store.as_json:
        echo_json({"deleted": gone})
    else:
        click.echo(f"{gone:,} {'job was' if gone == 1 else 'jobs were'} deleted.")
    if not gone:
        raise click.exceptions.Exit(1)


async def _look(store: StoreOptions, name: str) -> QueueView:
    async with store.open() as app:
        return await known(app, name)


async def _purge(store: StoreOptions, name: str, state: str, older: float | None, total: int | None) -> int:
    from accoda.admin import queues as admin
    from accoda.admin.store import now_of

    async with store.open() as app:
        before = None if older is None else await now_of(await app.connections.get()) - round(older * 1000)
        with progress("Deleting", total, quiet=store.as_json) as so_far:
            return await admin.purge(app, name, state, before, so_far)  # type: ignore[arg-type]


def _somebody() -> str:
    """Who types: user@host. A user without a name has a number."""
    import getpass
    import os
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"


def _say(queue: QueueView) -> None:
    say(f"{queue.name} is {_state(queue, now())}.")


def _card(queue: QueueView) -> None:
    card(
        f"queue {queue.name}",
        [
            ("state", _state(queue, now())),
            ("waiting", f"{queue.ready:,} ready, {queue.delayed:,} delayed"),
            ("oldest", length(queue.oldest_age) if queue.ready else None),
            ("taken", f"{queue.taken:,}"),
            ("dead", f"{queue.dead:,}"),
            ("so far", f"{queue.done:,} done, {queue.retried:,} retried, {queue.buried:,} buried"),
            ("leases lost", f"{queue.expired:,}" if queue.expired else None),
            ("handler", "yes" if queue.handled else None),
        ],
    )


def _draw(found: Sequence[QueueView]) -> None:
    if not found:
        click.echo("There are no queues yet: a queue is there from its first job on.", err=True)
        return
    moment = now()
    counts = ("ready", "delayed", "taken", "dead", "done")
    columns = [Column("queue", cut=True), *(Column(name, right=True) for name in counts), Column("oldest", right=True)]
    table(
        [*columns, Column("state", cut=True)],
        [
            (
                queue.name,
                *(f"{getattr(queue, name):,}" for name in counts),
                length(queue.oldest_age) if queue.ready else "",
                _state(queue, moment),
            )
            for queue in found
        ],
    )


def _state(queue: QueueView, moment: int) -> str:
    if not queue.paused:
        return "open"
    return f"paused for {length((at(queue.paused_until) - moment) / 1000)}" if queue.paused_until else "paused"
