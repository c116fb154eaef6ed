"""`accoda schedules`: jobs that come by cron or at intervals, and when they come next, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import (
    StoreOptions,
    answer_is_no,
    confirm,
    echo_json,
    json_option,
    lazily,
    present,
    store_options,
    yes_option,
)
from accoda.cli.completion import complete_queues
from accoda.cli.draw import Column, card, echo, now, say, table
from accoda.cli.enqueue import read_json
from accoda.cli.groups import Defaulting, near
from accoda.cli.jobs import in_json
from accoda.cli.words import ago, moment

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.model import Enqueued
    from accoda.operations import schedules as operations
    from accoda.operations.schedules import ScheduleView
    from accoda.schedules import Changes, Schedule
else:
    operations = lazily("accoda.operations.schedules")

name_argument = click.argument("name")


@click.group(cls=Defaulting)
def schedules() -> None:
    """Jobs that come by cron or at intervals.

    Without a command: list.
    """


@schedules.command("list")
@store_options
def list_(store: StoreOptions) -> None:
    """List all schedules, with their next run."""
    present(store, store.ask(lambda app: operations.list(app)), _draw)


@schedules.command()
@name_argument
@store_options
def show(store: StoreOptions, name: str) -> None:
    """Show the schedule NAME and its next runs."""
    present(store, store.ask(lambda app: _known(app, name)), _card)


@schedules.command()
@name_argument
@click.option("--cron", metavar="EXPRESSION", help='Such as "0 7 * * MON-FRI".')
@click.option("--tz", metavar="ZONE", help="Of the cron times, such as Europe/Rome. Else UTC.")
@click.option("--every", metavar="LENGTH", help="Such as 90s, 5m, 1h30m or 1d.")
@click.option("-q", "--queue", metavar="QUEUE", shell_complete=complete_queues, help="Where its jobs go. Else NAME.")
@click.option("--type", metavar="TYPE", help="The type of its jobs.")
@click.option("--lane", metavar="LANE", help="The lane of its jobs.")
@click.option("--payload", metavar="JSON", help="What its jobs carry.")
@click.option("-p", "--priority", metavar="LEVEL", help="CRITICAL, HIGH, NORMAL or LOW.")
@click.option("--catch-up", metavar="HOW", help="Missed ticks: skip, once (default) or all.")
@click.option("--catch-up-limit", type=int, metavar="N", help="The most that all makes up for. Else 100.")
@click.option("--overlap", metavar="HOW", help="allow (default), skip or replace.")
@click.option("--grace", metavar="LENGTH", help="How late a tick may be under skip.")
@click.option("--starts-at", metavar="MOMENT", help="Not before 2030-01-31T09:00:00Z.")
@click.option("--ends-at", metavar="MOMENT", help="Not after.")
@click.option("--job-name", metavar="TEXT", help="What people call its jobs.")
@click.option("--max-retries", type=int, metavar="N", help="Bury its jobs after so many.")
@click.option("--webhook-url", metavar="URL", help="Call this when one of its jobs has ended.")
@click.option("--paused", is_flag=True, help="Store it, but let it make nothing yet.")
@click.option("--replace", is_flag=True, help="Change it, if it is there already.")
@store_options
def add(store: StoreOptions, name: str, replace: bool, **given: Any) -> None:
    """Add the schedule NAME.

    \b
    accoda schedules add report --every 1h30m --queue reports
    accoda schedules add report --cron "0 7 * * MON-FRI" --tz Europe/Rome
    """
    schedule = _schedule(name, given)

    async def do(app: App) -> ScheduleView:
        from accoda.schedules import create, put

        stored = await (put if replace else create)(app.storage, schedule, app=app)
        return operations.ScheduleView.of(app, stored)

    _say(store, store.ask(do, create=True), "is stored")


@schedules.command()
@name_argument
@store_options
def pause(store: StoreOptions, name: str) -> None:
    """Let it make no jobs until it is resumed."""

    async def do(app: App) -> ScheduleView:
        await _known(app, name)
        return await operations.pause(app, name)

    _say(store, store.ask(do), "is paused")


@schedules.command()
@name_argument
@store_options
def resume(store: StoreOptions, name: str) -> None:
    """Resume it, with the next tick from now."""

    async def do(app: App) -> ScheduleView:
        await _known(app, name)
        return await operations.resume(app, name)

    _say(store, store.ask(do), "resumed")


@schedules.command()
@name_argument
@store_options
def trigger(store: StoreOptions, name: str) -> None:
    """Enqueue its job now; nothing else changes."""

    async def do(app: App) -> Enqueued:
        await _known(app, name)
        return await operations.trigger(app, name)

    def draw(done: Enqueued) -> None:
        kept = "; its last job has not ended, and it must not overlap" if done.what == "kept" else ""
        say(f"job {done.id} was {done.what}{kept}.")

    present(store, store.ask(do), draw)


@schedules.command()
@name_argument
@yes_option
@store_options
def delete(store: StoreOptions, name: str, yes: bool) -> None:
    """Delete it; jobs that it made stay."""
    from accoda.errors import NotFound

    words = store.ask(lambda app: _known(app, name)).words
    confirm(f"Delete the schedule {name} ({words})", yes)
    try:
        store.ask(lambda app: operations.delete(app, name))
    except NotFound:
        answer_is_no(f"{name} was deleted by another command meanwhile.")
    present(store, {"deleted": name}, lambda told: say(f"{name} was deleted."))


@schedules.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--prune", is_flag=True, help="Delete what came from a file and is not in this one.")
@yes_option
@store_options
def apply(store: StoreOptions, file: Path, prune: bool, yes: bool) -> None:
    """Store the [schedules.NAME] tables of a TOML FILE."""
    from accoda.schedules import apply as store_all
    from accoda.schedules import read_toml

    wanted = read_toml(file)
    names = {schedule.name for schedule in wanted}
    if prune:
        found = store.ask(lambda app: operations.list(app), create=True)
        stale = [view.name for view in found if view.name not in names and view.source == "file"]
        if stale:
            confirm(f"Delete {', '.join(stale[:10])}{' …' if len(stale) > 10 else ''}", yes)
    changes = store.ask(lambda app: store_all(app.storage, wanted, prune=prune, app=app), create=True)
    present(store, changes, _draw_changes)


@schedules.command()
@click.argument("expression", metavar="CRON")
@click.option("--tz", metavar="ZONE", default="UTC", show_default=True, help="Such as Europe/Rome.")
@click.option("-n", "--runs", type=click.IntRange(1, 100), default=5, show_default=True, help="How many.")
@json_option
def check(expression: str, tz: str, runs: int, as_json: bool) -> None:
    """Say in words when CRON runs, without a store."""
    from accoda.operations.moments import rfc3339
    from accoda.schedules import Schedule, in_words, upcoming

    schedule = Schedule(name="check", queue="check", cron=expression, tz=tz)
    at = now()
    ticks = [rfc3339(tick) for tick in upcoming(schedule, runs, at)]
    words = in_words(schedule)
    if as_json:
        echo_json({"words": words, "upcoming": ticks})
        return
    say(words)
    _draw_runs(ticks, tz, at)


async def _known(app: App, name: str) -> ScheduleView:
    """The schedule of that name, or an error that says which one may be meant."""
    from accoda.errors import NotFound

    try:
        return await operations.get(app, name)
    except NotFound:
        names = [view.name for view in await operations.list(app)]
        raise NotFound("schedule", name, near(name, names) or "accoda schedules lists all of them") from None


def _schedule(name: str, given: dict[str, Any]) -> Schedule:
    """The schedule that the options describe. Errors name the option."""
    from accoda.errors import InvalidInput
    from accoda.schedules.model import names_on_the_wire, read_schedule

    wire = names_on_the_wire()
    said = {wire[option]: value for option, value in given.items() if option in wire and value is not None}
    if "payload" in said:
        said["payload"] = read_json(said["payload"])
    if "priority" in said:
        said["priority"] = said["priority"].upper()
    try:
        return read_schedule({"queue": name, **said, "name": name, "enabled": not given["paused"]})
    except InvalidInput as error:
        options = {wired: f"--{option.replace('_', '-')}" for option, wired in wire.items() if option in given}
        option = options.get(error.field, error.field)
        raise InvalidInput(option, str(error).removeprefix(f"{error.field}: ")) from error


def _say(store: StoreOptions, view: ScheduleView, said: str) -> None:
    when = f"; next {_local(view.next_at, view.tz)} ({ago(view.next_at, now())})" if view.next_at is not None else ""
    present(store, view, lambda view: say(f"{view.name} {said}: {view.words}{when}."))


def _draw(views: Sequence[ScheduleView]) -> None:
    if not views:
        echo("There are no schedules. accoda schedules add --help says how to make one.", err=True)
        return
    columns = [Column("name", cut=True), Column("state"), Column("when", cut=True), Column("queue", cut=True)]
    at = now()
    rows = [
        (view.name, view.state, view.words, view.queue, "overdue" if view.late else ago(view.next_at, at))
        for view in views
    ]
    table([*columns, "next"], rows)
    for view in views:
        if view.problem:
            say(f"{view.name}: {view.problem}", err=True)


def _card(view: ScheduleView) -> None:
    at = now()
    last = "never" if view.last_at is None else f"{_local(view.last_at, view.tz)} ({ago(view.last_at, at)})"
    card(
        f"schedule {view.name}",
        [
            ("state", view.state),
            ("when", view.words),
            ("queue", view.queue),
            ("payload", None if view.payload is None else in_json(view.payload)),
            ("priority", None if view.priority == "NORMAL" else view.priority),
            ("missed ticks", view.catch_up and _CATCH_UP[view.catch_up].format(view.catch_up_limit)),
            ("overlap", view.overlap),
            ("from", view.starts_at),
            ("until", view.ends_at),
            ("webhook", view.webhook_url),
            ("source", view.source),
            ("last run", last),
            ("problem", view.problem),
        ],
    )
    if view.late:
        echo("Its tick is overdue: is a worker or the service running?", err=True)
    if view.upcoming:
        echo()
        _draw_runs(view.upcoming, view.tz, at)


def _draw_runs(ticks: Sequence[str], zone: str | None, at: int) -> None:
    table(["next runs", ""], [(_local(tick, zone), ago(tick, at)) for tick in ticks])


def _draw_changes(changes: Changes) -> None:
    for what in ("created", "changed", "removed", "unchanged"):
        names = getattr(changes, what)
        if names:
            say(f"{what}: {', '.join(names)}")


def _local(text: str, zone: str | None) -> str:
    """A moment as the clocks of a zone show it."""
    from datetime import datetime

    from accoda.schedules.cron import zone_of

    return f"{datetime.fromtimestamp(moment(text) // 1000, zone_of(zone or 'UTC')):%a %Y-%m-%d %H:%M:%S %Z}"


_CATCH_UP = {
    "skip": "skip: a tick that is late gets no job",
    "once": "once: one job for all of them",
    "all": "all: a job for each, at most {}",
}
