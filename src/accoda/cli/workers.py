"""`accoda workers`: the workers of a store; `drain` lets one finish what it runs and take nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import StoreOptions, lazily, present, store_options
from accoda.cli.draw import Column, echo, now, say, table
from accoda.cli.groups import Defaulting
from accoda.cli.words import ago
from accoda.operations.words import rough

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations import workers as operations
    from accoda.operations.workers import WorkerView
else:
    operations = lazily("accoda.operations.workers")

worker_argument = click.argument("worker", metavar="WORKER")


@click.group(cls=Defaulting)
def workers() -> None:
    """Running workers, by their heartbeats."""


@workers.command("list")
@store_options
def list_(store: StoreOptions) -> None:
    """List the running workers (the default)."""
    present(store, store.ask(lambda app: operations.list(app)), _draw)


@workers.command()
@worker_argument
@store_options
def drain(store: StoreOptions, worker: str) -> None:
    """Let WORKER (its id, host:pid or name) finish what it runs and take nothing more, until it restarts."""
    view = store.ask(lambda app: _drain(app, worker, True))
    present(store, view, lambda view: say(f"{view.id} drains: it finishes what it runs and takes nothing more."))


@workers.command()
@worker_argument
@store_options
def undrain(store: StoreOptions, worker: str) -> None:
    """Let WORKER (its id, host:pid or name) take jobs again."""
    view = store.ask(lambda app: _drain(app, worker, False))
    present(store, view, lambda view: say(f"{view.id} takes jobs again."))


async def _drain(app: App, worker: str, on: bool) -> WorkerView:
    return await operations.drain(app, _id_of(worker, await operations.list(app)), on)


def _id_of(text: str, found: list[WorkerView]) -> str:
    """The id of the worker that is meant; the text itself if there is none, for the error that names it."""
    meant = [one.id for one in found if text in (one.id, f"{one.host}:{one.pid}", one.name)]
    if len(meant) > 1:
        raise click.UsageError(f"{text!r:.60} may be {', '.join(meant[:5])}; name one of them")
    return meant[0] if meant else text


def _draw(found: list[WorkerView]) -> None:
    if not found:
        echo("No worker is running. Start one: accoda worker MODULE:APP", err=True)
        return
    moment = now()
    table(
        [Column("worker", cut=True), Column("where", cut=True), "started", "beat", "busy", Column("running", cut=True)],
        [
            (
                worker.name,
                f"{worker.host}:{worker.pid}",
                ago(worker.started_at, moment),
                f"{rough(worker.beat_age)} ago",
                f"{worker.running}/{worker.slots}",
                _does(worker),
            )
            for worker in found
        ],
    )


def _does(worker: WorkerView) -> str:
    """What it runs now, what it could run if it is idle, or what is wrong."""
    if worker.problem:
        return worker.problem
    said = ["drained"] if worker.drained else ["draining"] if worker.draining else []
    running = [f"{queue} × {jobs:,}" for queue, (jobs, _) in operations.running_by_queue(worker).items()]
    return ", ".join(said + running) or f"idle ({', '.join(worker.queues)})"
