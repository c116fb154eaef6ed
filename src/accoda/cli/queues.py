"""`accoda queues`: what is in them; pause, resume, purge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from accoda.cli.common import (
    StoreOptions,
    answer_is_no,
    confirm,
    known,
    lazily,
    present,
    store_options,
    yes_option,
)
from accoda.cli.completion import complete_queues
from accoda.cli.draw import Column, card, echo, now, progress, say, table
from accoda.cli.groups import Nouns
from accoda.cli.jobs import state_option
from accoda.cli.words import moment, read_length
from accoda.operations.words import length, rough, state_word

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.model import State
    from accoda.operations import queues as operations
    from accoda.operations.views import QueueView
else:
    operations = lazily("accoda.operations.queues")

name_argument = click.argument("name")


@click.group(cls=Nouns, noun="NAME", complete=complete_queues)
def queues() -> None:
    """List queues; show, pause, resume or purge the queue NAME."""


@queues.command("list", cls=click.Command)
@click.option("--all", "system", is_flag=True, help="System queues too.")
@store_options
def list_(store: StoreOptions, system: bool) -> None:
    """List all queues."""
    present(store, store.ask(lambda app: operations.list(app, system=system)), _draw)


@queues.command()
@name_argument
@store_options
def show(store: StoreOptions, name: str) -> None:
    """Show one queue."""
    present(store, store.ask(lambda app: known(app, name)), _card)


@queues.command()
@name_argument
@click.option("--for", "length_", metavar="LENGTH", help="Such as 30m; else until it is resumed.")
@click.option("--note", metavar="TEXT", default="", help="Why; accoda why shows it.")
@store_options
def pause(store: StoreOptions, name: str, length_: str | None, note: str) -> None:
    """Hand out none of its jobs; running jobs will finish."""
    seconds = None if length_ is None else read_length("for", length_)

    async def do(app: App) -> QueueView:
        await known(app, name)
        return await operations.pause(app, name, seconds, _user(), note)

    present(store, store.ask(do), _say)


@queues.command()
@name_argument
@store_options
def resume(store: StoreOptions, name: str) -> None:
    """End a pause."""

    async def do(app: App) -> QueueView:
        await known(app, name)
        return await operations.resume(app, name)

    present(store, store.ask(do), _say)


@queues.command()
@name_argument
@state_option(required=True)
@click.option("--older-than", metavar="LENGTH", help="Only those older than, such as 7d.")
@yes_option
@store_options
def purge(store: StoreOptions, name: str, state: State, older_than: str | None, yes: bool) -> None:
    """Delete its jobs in a state, for ever."""
    seconds = None if older_than is None else read_length("older-than", older_than)
    queue = store.ask(lambda app: known(app, name))
    kept = state in ("done", "cancelled")  # the store counts all that ever were, not those that are there
    count = None if kept else getattr(queue, state, 0)
    if count == 0:
        answer_is_no(f"No job of {name} is {state_word(state)}.")
    older = f" older than {length(seconds)}" if seconds is not None else ""
    confirm(f"Delete {'all' if count is None else f'up to {count:,}'} {state_word(state)} jobs of {name}{older}", yes)

    async def do(app: App) -> int:
        from accoda.operations.moments import now_of

        before = None if seconds is None else await now_of(app.storage) - round(seconds * 1000)
        with progress("Deleting", count, quiet=store.as_json) as so_far:
            return await operations.purge(app, name, state, before, so_far)

    gone = store.ask(do)
    said = f"{gone:,} {'job was' if gone == 1 else 'jobs were'} deleted."
    present(store, {"deleted": gone}, lambda _: echo(said))
    if not gone:
        raise click.exceptions.Exit(1)


def _user() -> str:
    """Who runs the command: user@host. A user without a name has a number."""
    import getpass
    import os
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


def _say(queue: QueueView) -> None:
    say(f"{queue.name} is {_paused(queue, now())}." if queue.paused else f"{queue.name} resumed.")


def _card(queue: QueueView) -> None:
    card(
        f"queue {queue.name}",
        [
            ("number", queue.number),
            ("health", _health(queue, now())),
            ("waiting", f"{queue.ready:,} ready, {queue.delayed:,} delayed"),
            ("held", f"{queue.held:,} until their lanes have places" if queue.held else None),
            ("oldest", length(queue.oldest_age) if queue.ready else None),
            ("running", f"{queue.taken:,}"),
            ("dead", f"{queue.dead:,}"),
            ("so far", f"{queue.done:,} done, {queue.retried:,} retried, {queue.buried:,} buried"),
            ("leases lost", f"{queue.expired:,}" if queue.expired else None),
            ("cancelled", f"{queue.cancelled:,}" if queue.cancelled else None),
            ("promoted", f"{queue.promoted:,} delayed jobs became ready" if queue.promoted else None),
            ("handler", "yes" if queue.handled else None),
        ],
    )


def _draw(found: Sequence[QueueView]) -> None:
    if not found:
        echo("There are no queues yet: a queue is there from its first job on.", err=True)
        return
    at = now()
    held = ("held",) if any(queue.held for queue in found) else ()
    counts = ("ready", "delayed", *held, "taken", "dead", "done")
    titles = [Column(state_word(name), right=True) for name in (*counts, "oldest")]
    rows = [
        (
            queue.name,
            *(f"{getattr(queue, name):,}" for name in counts),
            rough(queue.oldest_age) if queue.ready else "",
            _health(queue, at),
        )
        for queue in found
    ]
    table([Column("queue", cut=True), *titles, Column("health", cut=True)], rows)


def _health(queue: QueueView, at: int) -> str:
    """The word and the reason."""
    if queue.paused:
        return _paused(queue, at)
    return queue.health.word + (f": {queue.health.reason}" if queue.health.reason else "")


def _paused(queue: QueueView, at: int) -> str:
    # A pause is given in seconds or more; what passed since then is milliseconds.
    return f"paused for {length(round((moment(queue.paused_until) - at) / 1000))}" if queue.paused_until else "paused"
