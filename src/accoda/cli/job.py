"""`accoda job ID`: everything about one job, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import StoreOptions, confirm, echo_json, lazily, present, store_options, yes_option
from accoda.cli.draw import card, echo, now, say
from accoda.cli.groups import Nouns
from accoda.cli.jobs import attempt, in_json, level
from accoda.cli.words import ago, read_length, stamp
from accoda.operations.words import length, state_word

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations import demands
    from accoda.operations import jobs as operations
    from accoda.operations.demands import WaiterView
    from accoda.operations.jobs import RunView
    from accoda.operations.views import JobView
else:
    operations = lazily("accoda.operations.jobs")
    demands = lazily("accoda.operations.demands")

EVERY = 0.5
"""Seconds between two looks at a job that is followed."""
A_LONG_TIME = 3600.0

id_argument = click.argument("id", type=click.IntRange(0, 2**63 - 1))


@click.group(cls=Nouns, noun="ID")
def job() -> None:
    """Show the job ID, or do something with it: accoda job 17 retry."""


@job.command()
@id_argument
@store_options
def show(store: StoreOptions, id: int) -> None:
    """Show everything about it."""

    async def ask(app: App) -> tuple[JobView, list[RunView], list[WaiterView]]:
        found = await operations.get(app, id)
        waiting = await demands.waiters_of(app, id) if found.waiters else []
        return found, await operations.failed_runs(app, id), waiting

    found, runs, waiting = store.ask(ask)
    present(store, found, lambda job: show_job(job, runs, waiting))


@job.command()
@id_argument
@store_options
def cancel(store: StoreOptions, id: int) -> None:
    """Take it back, whether it waits or runs."""
    _say(store, id, store.ask(lambda app: operations.cancel(app, id)), "cancelled")


@job.command()
@id_argument
@store_options
def retry(store: StoreOptions, id: int) -> None:
    """Run it again if it is dead, or now if it is delayed."""
    _say(store, id, store.ask(lambda app: operations.retry(app, id)), "ready to run")


@job.command()
@id_argument
@yes_option
@store_options
def delete(store: StoreOptions, id: int, yes: bool) -> None:
    """Delete it, in whatever state it is."""
    confirm(f"Delete job {id}, with its payload and result", yes)
    _say(store, id, store.ask(lambda app: operations.delete(app, id)), "deleted")


@job.command()
@id_argument
@click.argument("level", type=level, metavar="LEVEL")
@store_options
def priority(store: StoreOptions, id: int, level: Any) -> None:
    """Make it CRITICAL, HIGH, NORMAL or LOW, while it waits."""
    _say(store, id, store.ask(lambda app: operations.set_priority(app, id, level)), f"{level} now")


@job.command()
@id_argument
@click.option("--wait", metavar="LENGTH", default="0", help="Wait for it, up to a length such as 30s.")
@store_options
def result(store: StoreOptions, id: int, wait: str) -> None:
    """Print what its handler returned, as JSON."""
    seconds = read_length("wait", wait)
    echo_json(store.ask(lambda app: wait_for(app, id, seconds)))


@job.command()
@id_argument
@store_options
def follow(store: StoreOptions, id: int) -> None:
    """Print each change until it has ended.

    Exit with 1 if it failed or was cancelled.
    """
    if store.ask(lambda app: _follow(app, id, store.as_json)).state in ("dead", "cancelled"):
        raise click.exceptions.Exit(1)


async def wait_for(app: App, id: int, seconds: float | None) -> Any:
    """The result of a job, with its secrets hidden. None: however long it takes."""
    from accoda.errors import JobCancelled, JobFailed, ResultTimeout

    while True:
        job = await operations.wait_result(app, id, A_LONG_TIME if seconds is None else seconds)
        if job.state == "dead":
            raise JobFailed(id, job.reason or "")
        if job.state == "cancelled":
            raise JobCancelled(id)
        if job.state == "done":
            return job.result
        if seconds is not None:
            raise ResultTimeout(id, seconds, job.state)


def show_job(job: JobView, runs: Sequence[RunView] = (), waiting: Sequence[WaiterView] = ()) -> None:
    """A card, with the traceback of its last failed run, if one was recorded."""
    moment = now()

    def at(value: str | None) -> str | None:
        return f"{stamp(value)}, {ago(value, moment)}" if value else None

    hook = f"{job.webhook_url} on {' and '.join(job.webhook_on or ())}" if job.webhook_url else None
    card(
        f"job {job.id}" + (f": {job.name}" if job.name else ""),
        [
            ("queue", job.queue),
            ("type", job.type),
            ("lane", job.lane),
            ("state", state_word(job.state)),
            ("progress", progress_of(job)),
            ("priority", job.priority or f"rank {job.rank:g}"),
            ("created", at(job.created_at)),
            ("starts", at(job.scheduled_at) if job.state == "delayed" else None),
            ("running since" if job.state == "taken" else "last run", at(job.taken_at)),
            ("worker", job.worker),
            ("lease until", at(job.lease_until)),
            ("ended", at(job.ended_at)),
            ("attempt", attempt(job)),
            ("crashes", job.crash_text),
            ("reason", job.reason),
            ("traceback", runs[-1].traceback if runs and job.state != "done" else None),
            ("fingerprint", job.fingerprint if job.state == "dead" else None),
            ("cost", job.cost or None),
            ("key", job.key),
            ("waiters", waiter_lines(waiting, moment) or job.waiters or None),
            ("kept for", length(job.keep_for) if job.keep_for else None),
            ("webhook", hook),
            ("schedule", f"{job.schedule}, tick of {stamp(job.tick)}" if job.schedule and job.tick else job.schedule),
            ("flow", f"{job.flow}, node {job.node}" if job.flow else None),
            ("payload", in_json(job.payload, 2)),
            ("result", in_json(job.result, 2) if job.result is not None else None),
        ],
    )


def waiter_lines(found: Sequence[WaiterView], moment: int) -> str:
    """A line for each waiter of a demand's job."""
    return "\n".join(f"{one.id}, {one.tier}, due {ago(one.due, moment) or 'now'}" for one in found)


def progress_of(job: JobView) -> str | None:
    """How far it is, in words."""
    if job.progress is None:
        return None
    share = f"{job.progress.fraction:.0%}" if job.progress.fraction is not None else ""
    return " ".join(word for word in (share, job.progress.message) if word) or None


async def _follow(app: App, id: int, as_json: bool) -> JobView:
    """Print each change until the job has ended. One that is gone was done or cancelled, and is not kept."""
    import asyncio

    from accoda.errors import JobNotFound

    said, last = "", None
    while True:
        try:
            job = await operations.get(app, id)
        except JobNotFound:
            if last is None:
                raise
            # A dead job stays, so this one did not fail.
            echo(f"{stamp(now())}  gone: done or cancelled and not kept, or deleted", err=as_json)
            return last
        last = job
        line = " · ".join(part for part in (state_word(job.state), progress_of(job), _why(job)) if part)
        if line != said:
            say(f"{stamp(now())}  {line}", err=as_json)
            said = line
        if job.ended_at is not None:
            if as_json:
                echo_json(job)
            return job
        await asyncio.sleep(EVERY)


def _why(job: JobView) -> str | None:
    if job.state == "taken":
        return f"by {job.worker}" if job.worker else None
    if job.state == "done":
        return in_json(job.result) if job.result is not None else None
    return job.reason if job.state in ("dead", "delayed", "held", "ready") else None


def _say(store: StoreOptions, id: int, answer: JobView | None, done: str) -> None:
    """Say what was done with a job."""
    if store.as_json:
        echo_json(answer if answer is not None else {"id": id, "done": done})
    else:
        echo(f"Job {id} is {done}.")
