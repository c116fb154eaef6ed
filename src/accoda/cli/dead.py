"""`accoda dead`: dead letters, what they have in common, and bringing them back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from accoda.cli.common import (
    Column,
    StoreOptions,
    ago,
    answer_is_no,
    confirm,
    echo_json,
    now,
    present,
    progress,
    run,
    say,
    store_options,
    table,
    yes_option,
)
from accoda.cli.groups import Defaulting
from accoda.cli.job import id_argument, show_job
from accoda.cli.jobs import cause, cursor_option, limit_option, queue_option, show_next
from accoda.cli.known import known

if TYPE_CHECKING:
    from accoda.admin.dead import Groups, ReplayReport
    from accoda.admin.letters import DeadFilter
    from accoda.admin.views import JobView, Page
    from accoda.app import App

F = TypeVar("F", bound=Callable[..., Any])

fingerprint_option = click.option("--fingerprint", metavar="HEX", help="Of this cause alone; see dead groups.")
system_option = click.option("--all", "system", is_flag=True, help="Those of Accoda's own queues too.")
ids_argument = click.argument("ids", nargs=-1, type=click.IntRange(0, 2**63 - 1), metavar="[ID]...")


@click.group(cls=Defaulting)
def dead() -> None:
    """Dead letters: jobs that were given up, with the reason."""


@dead.command("list")
@queue_option
@fingerprint_option
@limit_option
@cursor_option
@system_option
@store_options
def list_(store: StoreOptions, **given: Any) -> None:
    """List dead letters (the default)."""

    async def ask(app: App) -> Page[JobView]:
        from accoda.admin import dead as admin

        return await admin.page(app, **given)

    page: Page[JobView] = run(_with(store, given["queue"], ask))
    if store.as_json or page.items:
        present(store, page, lambda page: _draw(page.items))
    show_next(page, store, bool(given["queue"] or given["fingerprint"]), "No dead letter matches.")


@dead.command()
@queue_option
@system_option
@store_options
def groups(store: StoreOptions, queue: str | None, system: bool) -> None:
    """Group them by what their reasons have in common."""

    async def ask(app: App) -> Groups:
        from accoda.admin import dead as admin

        return await admin.groups(app, queue, system)

    present(store, run(_with(store, queue, ask)), _draw_groups)


@dead.command()
@id_argument
@store_options
def show(store: StoreOptions, id: int) -> None:
    """Show everything about one."""

    async def ask(app: App) -> JobView:
        from accoda.admin import jobs

        return await jobs.get(app, id)

    found: JobView = run(_with(store, None, ask))
    if found.state != "dead":
        answer_is_no(f"job {id} is {found.state}, not dead; see accoda job {id}")
    present(store, found, show_job)


@dead.command()
@ids_argument
@queue_option
@fingerprint_option
@system_option
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="At most so many a second.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say how many there are.")
@yes_option
@store_options
def replay(store: StoreOptions, ids: tuple[int, ...], rate: float | None, dry_run: bool, **given: Any) -> None:
    """Make them ready again: those with these IDs, or all that match.

    Ctrl-C stops it: what was made ready by then stays so.
    """
    yes = given.pop("yes")
    if ids:
        _check_ids_alone(given, dry_run)
        present(store, run(_with(store, None, lambda app: _revive(app, ids))), _tell)
        return
    count = _count(store, given, dry_run)
    if not dry_run:
        confirm(f"Replay {_many(count)}{_where(given)}", yes)
        report: ReplayReport = run(_with(store, None, lambda app: _replay(app, given, rate, count, store.as_json)))
        present(store, report, _tell)


@dead.command()
@ids_argument
@queue_option
@fingerprint_option
@system_option
@click.option("--dry-run", is_flag=True, help="Change nothing; say how many there are.")
@yes_option
@store_options
def delete(store: StoreOptions, ids: tuple[int, ...], dry_run: bool, yes: bool, **given: Any) -> None:
    """Delete them for ever: those with these IDs, or all that match."""
    if ids:
        _check_ids_alone(given, dry_run)
        confirm(f"Delete {len(ids):,} dead {'letter' if len(ids) == 1 else 'letters'}", yes)
        gone: int = run(_with(store, None, lambda app: _delete_each(app, ids)))
    else:
        count = _count(store, given, dry_run)
        if dry_run:
            return
        confirm(f"Delete {_many(count)}{_where(given)}", yes)
        gone = run(_with(store, None, lambda app: _delete(app, given, count, store.as_json)))
    present(store, {"deleted": gone}, lambda _: click.echo(f"{gone:,} deleted."))


def _count(store: StoreOptions, given: dict[str, Any], tell: bool) -> ReplayReport:
    """How many match, of the first 20,000; where it is all that was asked for, say so."""

    async def ask(app: App) -> ReplayReport:
        from accoda.admin import dead as admin

        return await admin.replay(app, _filter(given), dry_run=True)

    report: ReplayReport = run(_with(store, given["queue"], ask))
    if tell and store.as_json:
        echo_json(report)
    if not report.matched:
        answer_is_no("No dead letter matches.")
    if tell and not store.as_json:
        say(f"{_many(report)}{_where(given)}; nothing was changed. The first:")
        _draw(report.samples)
    return report


async def _replay(
    app: App, given: dict[str, Any], rate: float | None, count: ReplayReport, quiet: bool
) -> ReplayReport:
    from accoda.admin import dead as admin

    with progress("Replaying", None if count.partial else count.matched, quiet=quiet) as so_far:
        return await admin.replay(app, _filter(given), rate=rate, progress=so_far)


async def _delete(app: App, given: dict[str, Any], count: ReplayReport, quiet: bool) -> int:
    from accoda.admin import dead as admin

    with progress("Deleting", None if count.partial else count.matched, quiet=quiet) as so_far:
        return await admin.delete(app, _filter(given), progress=so_far)


async def _revive(app: App, ids: tuple[int, ...]) -> ReplayReport:
    from accoda.admin import dead as admin

    return await admin.revive(app, ids)


async def _delete_each(app: App, ids: tuple[int, ...]) -> int:
    """Delete the dead letters with these ids; where one is none, nothing of them all."""
    from accoda.admin import jobs
    from accoda.errors import Conflict

    for id in ids:
        state = (await jobs.get(app, id)).state
        if state != "dead":
            raise Conflict(f"job {id} is {state}, not dead; nothing was deleted. See accoda job {id} delete")
    for id in ids:
        await jobs.delete(app, id)
    return len(ids)


async def _with(store: StoreOptions, queue: str | None, ask: Callable[[App], Awaitable[Any]]) -> Any:
    async with store.open() as app:
        if queue is not None:
            await known(app, queue)
        return await ask(app)


def _filter(given: dict[str, Any]) -> DeadFilter:
    from accoda.admin.letters import DeadFilter

    return DeadFilter(**given)


def _check_ids_alone(given: dict[str, Any], dry_run: bool) -> None:
    if dry_run or any(given.values()):
        raise click.UsageError("give either IDs or a filter (--queue, --fingerprint, --all, --dry-run), not both")


def _many(report: ReplayReport) -> str:
    return f"{'more than ' if report.partial else ''}{report.matched:,} dead {_letters(report.matched)}"


def _letters(count: int) -> str:
    return "letter" if count == 1 else "letters"


def _where(given: dict[str, Any]) -> str:
    queue, cause = given["queue"], given["fingerprint"]
    return f" of {queue or 'all queues'}" + (f" with {cause}" if cause else "")


def _tell(report: ReplayReport) -> None:
    said = [f"{report.revived:,} {'is' if report.revived == 1 else 'are'} ready again"]
    if report.held:
        said.append(f"{report.held:,} stay dead, because another job holds their key")
    if report.gone:
        said.append(f"{report.gone:,} were no longer dead")
    say("; ".join(said) + ".")
    if not report.revived:
        raise click.exceptions.Exit(1)


def _draw(found: list[JobView]) -> None:
    moment = now()
    columns = (Column("id", right=True), Column("queue", cut=True), Column("attempts", right=True), "died")
    rows = [
        (job.id, job.queue, job.attempts, ago(job.ended_at, moment), job.fingerprint, cause(job.reason))
        for job in found
    ]
    table((*columns, "fingerprint", Column("reason", cut=True)), rows)


def _draw_groups(found: Groups) -> None:
    if not found.groups:
        click.echo("There are none.", err=True)
        return
    moment = now()
    columns = ("fingerprint", Column("count", right=True), Column("queues", cut=True), "last", Column("id", right=True))
    table(
        (*columns, Column("last reason", cut=True)),
        [
            (
                one.fingerprint,
                f"{one.count:,}",
                ", ".join(one.queues),
                ago(one.last_at, moment),
                one.last_id,
                cause(cause(one.reason)),
            )
            for one in found.groups
        ],
    )
    if found.partial:
        click.echo(f"Of the first {found.looked_at:,} alone; --queue looks further into one.", err=True)
