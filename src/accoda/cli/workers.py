"""`accoda workers`: who works on this store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import Column, StoreOptions, ago, length, now, present, run, store_options, table

if TYPE_CHECKING:
    from accoda.admin.workers import WorkerView


@click.command()
@store_options
def workers(store: StoreOptions) -> None:
    """List the workers that live, by their heartbeats."""
    present(store, run(_workers(store)), _draw)


async def _workers(store: StoreOptions) -> list[WorkerView]:
    from accoda.admin import workers as admin

    async with store.open() as app:
        return await admin.list(app)


def _draw(found: list[WorkerView]) -> None:
    if not found:
        click.echo("No worker lives. Start one: accoda worker MODULE:APP", err=True)
        return
    moment = now()
    table(
        [Column("worker", cut=True), Column("where", cut=True), "started", "beat", "busy", Column("does", cut=True)],
        [
            (
                worker.name,
                f"{worker.host}:{worker.pid}",
                ago(worker.started_at, moment),
                f"{length(worker.beat_age)} ago",
                f"{worker.busy}/{worker.max_processors}",
                _does(worker),
            )
            for worker in found
        ],
    )


def _does(worker: WorkerView) -> str:
    """What it runs now; what it could run, if it is idle; what is wrong, if something is."""
    if worker.problem:
        return worker.problem
    running = [f"{one.queue} × {one.jobs}" for one in worker.processors if one.queue is not None]
    return ", ".join(running) or f"idle ({', '.join(worker.queues)})"
