"""`accoda schedules`: jobs that come by cron or at intervals, and when they come next, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import (
    Column,
    StoreOptions,
    ago,
    answer_is_no,
    card,
    confirm,
    echo_json,
    now,
    present,
    run,
    say,
    stamp,
    store_options,
    table,
    yes_option,
)
from accoda.cli.completion import complete_queues
from accoda.cli.groups import Defaulting, near

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.schedules import Changes, Schedule, ScheduleView

RUNS = 5


@click.group(cls=Defaulting)
def schedules() -> None:
    """Jobs that come by cron or at intervals.

    Without a command: list.
    """


@schedules.command("list")
@store_options
def list_schedules(store: StoreOptions) -> None:
    """List all schedules, with their next run."""

    async def ask() -> tuple[list[ScheduleView], list[dict[str, Any]]]:
        from accoda.schedules import list_all

        async with store.open() as app:
            found = await list_all(app.storage)
            return found, [_document(app, view) for view in found]

    views, documents = run(ask())
    if store.as_json:
        echo_json({"items": documents})
    else:
        _draw(views)


@schedules.command()
@click.argument("name")
@store_options
def show(store: StoreOptions, name: str) -> None:
    """Show the schedule NAME and its next runs."""

    async def ask() -> tuple[ScheduleView, dict[str, Any]]:
        async with store.open() as app:
            view = await _known(app, name)
            return view, _document(app, view)

    view, document = run(ask())
    if store.as_json:
        echo_json(document)
    else:
        _card(view, document.get("payload"))


@schedules.command()
@click.argument("name")
@click.option("--cron", metavar="EXPRESSION", help='Such as "0 7 * * MON-FRI".')
@click.option("--tz", metavar="ZONE", help="Of the cron times, such as Europe/Rome. Else UTC.")
@click.option("--every", metavar="LENGTH", help="Such as 90s, 5m, 1h30m or 1d.")
@click.option("-q", "--queue", metavar="QUEUE", shell_complete=complete_queues, help="Where its jobs go. Else NAME.")
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

    async def do() -> tuple[ScheduleView, dict[str, Any]]:
        from accoda.schedules import create, put

        async with store.open(create=True) as app:
            view = await (put if replace else create)(app.storage, schedule, app=app)
            return view, _document(app, view)

    _tell(store, *run(do()), said="is stored")


@schedules.command()
@click.argument("name")
@store_options
def pause(store: StoreOptions, name: str) -> None:
    """Let it make no jobs until it is resumed."""
    _tell(store, *run(_switch(store, name, False)), said="is paused")


@schedules.command()
@click.argument("name")
@store_options
def resume(store: StoreOptions, name: str) -> None:
    """Let it go on, with the next tick from now."""
    _tell(store, *run(_switch(store, name, True)), said="goes on")


@schedules.command()
@click.argument("name")
@store_options
def trigger(store: StoreOptions, name: str) -> None:
    """Enqueue its job now; nothing else changes."""

    async def do() -> Any:
        from accoda.schedules import maker_of
        from accoda.schedules import trigger as enqueue

        async with store.open() as app:
            await _known(app, name)
            return await enqueue(app.storage, maker_of(app), name)

    def draw(done: Any) -> None:
        kept = "; its last job has not ended, and it must not overlap" if done.what == "kept" else ""
        say(f"job {done.id} was {done.what}{kept}.")

    present(store, run(do()), draw)


@schedules.command()
@click.argument("name")
@yes_option
@store_options
def delete(store: StoreOptions, name: str, yes: bool) -> None:
    """Delete it; jobs that it made stay."""

    async def look() -> str:
        async with store.open() as app:
            return (await _known(app, name)).words

    async def do() -> bool:
        from accoda.schedules import delete as remove

        async with store.open() as app:
            return await remove(app.storage, name)

    words = run(look())
    confirm(f"Delete the schedule {name} ({words})", yes)
    gone = run(do())
    if not gone:
        answer_is_no(f"Somebody else has deleted {name} meanwhile.")
    present(store, {"deleted": name}, lambda told: say(f"{name} was deleted."))


@schedules.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--prune", is_flag=True, help="Delete what came from a file and is not in this one.")
@yes_option
@store_options
def apply(store: StoreOptions, file: Path, prune: bool, yes: bool) -> None:
    """Store the [schedules.NAME] tables of a TOML FILE."""
    from accoda.schedules import read_toml

    wanted = read_toml(file)

    async def stale() -> list[str]:
        from accoda.schedules import list_all

        async with store.open(create=True) as app:
            names = {schedule.name for schedule in wanted}
            views = [view for view in await list_all(app.storage) if view.name not in names]
            return [view.name for view in views if view.schedule is not None and view.schedule.source == "file"]

    async def do() -> Changes:
        from accoda.schedules import apply as store_all

        async with store.open(create=True) as app:
            return await store_all(app.storage, wanted, prune=prune, app=app)

    if prune and (names := run(stale())):
        confirm(f"Delete {', '.join(names[:10])}{' …' if len(names) > 10 else ''}", yes)
    present(store, run(do()), _draw_changes)


@schedules.command()
@click.argument("expression", metavar="CRON")
@click.option("--tz", metavar="ZONE", default="UTC", show_default=True, help="Such as Europe/Rome.")
@click.option("-n", "--runs", type=click.IntRange(1, 100), default=RUNS, show_default=True, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="For a program to read.")
def check(expression: str, tz: str, runs: int, as_json: bool) -> None:
    """Say in words when CRON runs, without a store."""
    from accoda.admin.moments import shown
    from accoda.schedules import Schedule, in_words, upcoming

    schedule = Schedule(name="check", queue="check", cron=expression, tz=tz)
    moment = now()
    ticks = upcoming(schedule, runs, moment)
    words = in_words(schedule)
    if as_json:
        echo_json({"words": words, "upcoming": [shown(tick) for tick in ticks]})
        return
    say(words)
    _draw_runs(ticks, tz, moment)


async def _switch(store: StoreOptions, name: str, enabled: bool) -> tuple[ScheduleView, dict[str, Any]]:
    from accoda.schedules import set_enabled

    async with store.open() as app:
        await _known(app, name)
        view = await set_enabled(app.storage, name, enabled)
        return view, _document(app, view)


async def _known(app: App, name: str) -> ScheduleView:
    """The schedule of that name, or what may have been meant."""
    from accoda.errors import NotFound
    from accoda.schedules import get, list_all

    try:
        return await get(app.storage, name)
    except NotFound:
        names = [view.name for view in await list_all(app.storage)]
        raise NotFound("schedule", name, near(name, names) or "accoda schedules lists those that are there") from None


def _schedule(name: str, given: dict[str, Any]) -> Schedule:
    """The schedule that the options describe. Errors name the option."""
    import msgspec

    from accoda.errors import InvalidInput
    from accoda.schedules.model import names_on_the_wire, read_schedule

    wire = names_on_the_wire()
    said = {wire[option]: value for option, value in given.items() if option in wire and value is not None}
    if "payload" in said:
        try:
            said["payload"] = msgspec.json.decode(said["payload"])
        except (ValueError, RecursionError) as error:
            problem = f"""must be JSON, such as '{{"year": 2030}}' or '"text"': {error}"""
            raise InvalidInput("payload", problem) from error
    if "priority" in said:
        said["priority"] = said["priority"].upper()
    try:
        return read_schedule({"queue": name, **said, "name": name, "enabled": not given["paused"]})
    except InvalidInput as error:
        options = {wired: f"--{option.replace('_', '-')}" for option, wired in wire.items() if option in given}
        option = options.get(error.field, error.field)
        raise InvalidInput(option, str(error).removeprefix(f"{error.field}: ")) from error


def _document(app: App, view: ScheduleView) -> dict[str, Any]:
    """A schedule as the HTTP API shows it."""
    from accoda.admin.moments import shown
    from accoda.schedules.record import plain as fields_of
    from accoda.schedules.secrets import shown as hidden
    from accoda.shown.plain import plain

    told: dict[str, Any] = {} if view.schedule is None else fields_of(view.schedule)
    if view.schedule is not None:
        handler = app.handlers.get(view.schedule.queue)
        secret = (*view.secret, *(handler.options.secret if handler else ()))
        # Before it is made plain and after: see `admin.secrets`.
        told["payload"] = hidden(plain(hidden(view.schedule.payload, secret)), secret)
    return {
        "name": view.name,
        "state": view.state,
        "words": view.words,
        **told,
        "nextAt": shown(view.next_at),
        "lastAt": shown(view.last_at),
        "upcoming": [shown(tick) for tick in view.upcoming(RUNS)],
        "late": view.late,
        "problem": view.problem,
    }


def _tell(store: StoreOptions, view: ScheduleView, document: dict[str, Any], *, said: str) -> None:
    if store.as_json:
        echo_json(document)
        return
    when = f"; next {_when(view, view.next_at)} ({ago(view.next_at, view.at)})" if view.next_at is not None else ""
    say(f"{view.name} {said}: {view.words}{when}.")


def _draw(views: Sequence[ScheduleView]) -> None:
    if not views:
        click.echo("There are no schedules. accoda schedules add --help says how to make one.", err=True)
        return
    columns = [Column("name", cut=True), Column("state"), Column("when", cut=True), Column("queue", cut=True)]
    rows = [
        (view.name, view.state, view.words, view.schedule.queue if view.schedule else "", _next(view)) for view in views
    ]
    table([*columns, "next"], rows)
    for view in views:
        if view.problem:
            say(f"{view.name}: {view.problem}", err=True)


def _next(view: ScheduleView) -> str:
    return "overdue" if view.late else ago(view.next_at, view.at)


def _card(view: ScheduleView, payload: Any) -> None:
    import msgspec

    schedule = view.schedule
    facts: list[tuple[str, object]] = [("state", view.state), ("when", view.words)]
    if schedule is not None:
        shown = None if payload is None else msgspec.json.encode(payload, enc_hook=str).decode("utf-8", "replace")
        facts += [
            ("queue", schedule.queue),
            ("payload", shown),
            ("priority", None if schedule.priority == "NORMAL" else schedule.priority),
            ("missed ticks", _CATCH_UP[schedule.catch_up].format(schedule.catch_up_limit)),
            ("overlap", schedule.overlap),
            ("from", schedule.starts_at),
            ("until", schedule.ends_at),
            ("webhook", schedule.webhook_url),
            ("source", schedule.source),
        ]
    last = "never" if view.last_at is None else f"{_when(view, view.last_at)} ({ago(view.last_at, view.at)})"
    card(f"schedule {view.name}", [*facts, ("last run", last), ("problem", view.problem)])
    if view.late:
        click.echo("Its tick is overdue: is a worker or the service running?", err=True)
    if ticks := view.upcoming(RUNS):
        click.echo()
        _draw_runs(ticks, schedule.tz if schedule is not None else "UTC", view.at)


def _draw_runs(ticks: Sequence[int], zone: str, moment: int) -> None:
    table(["next runs", ""], [(_local(tick, zone), ago(tick, moment)) for tick in ticks])


def _draw_changes(changes: Changes) -> None:
    for what in ("created", "changed", "removed", "unchanged"):
        names = getattr(changes, what)
        if names:
            say(f"{what}: {', '.join(names)}")


def _when(view: ScheduleView, moment: int) -> str:
    return stamp(moment) if view.schedule is None else _local(moment, view.schedule.tz)


def _local(moment: int, zone: str) -> str:
    """A moment as the clocks of a zone show it."""
    from datetime import datetime

    from accoda.schedules.cron import zone_of

    return f"{datetime.fromtimestamp(moment // 1000, zone_of(zone)):%a %Y-%m-%d %H:%M:%S %Z}"


_CATCH_UP = {
    "skip": "skip: a tick that is late gets no job",
    "once": "once: one job for all of them",
    "all": "all: a job for each, at most {}",
}
