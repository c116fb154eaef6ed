"""`accoda dead`: dead letters, what they have in common, and bringing them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import (
    StoreOptions,
    answer_is_no,
    confirm,
    echo_json,
    known,
    lazily,
    present,
    store_options,
    yes_option,
)
from accoda.cli.draw import Column, echo, now, progress, say, table
from accoda.cli.groups import Defaulting
from accoda.cli.jobs import (
    attempt,
    cause,
    cursor_option,
    limit_option,
    page_of,
    queue_option,
    show_next,
    system_option,
    type_option,
    typed_column,
)
from accoda.cli.words import ago

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations import bulk, failure_groups, jobs
    from accoda.operations.bulk import Action, BulkView, Count
    from accoda.operations.failure_groups import Groups
    from accoda.operations.job_filter import JobFilter
    from accoda.operations.views import JobView
else:
    bulk = lazily("accoda.operations.bulk")
    failure_groups = lazily("accoda.operations.failure_groups")
    jobs = lazily("accoda.operations.jobs")

fingerprint_option = click.option("--fingerprint", metavar="HEX", help="Of this cause alone; see dead groups.")
SAMPLES = 5
dry_run_option = click.option("--dry-run", is_flag=True, help="Change nothing; say how many there are.")


@click.group(cls=Defaulting)
def dead() -> None:
    """Dead letters: jobs that failed for good, with the reason."""


@dead.command("list")
@queue_option
@type_option
@fingerprint_option
@limit_option
@cursor_option
@system_option
@store_options
def list_(store: StoreOptions, **given: Any) -> None:
    """List dead letters, the latest first (the default)."""
    page = page_of(store, given, state="dead")
    if store.as_json or page.items:
        present(store, page, lambda page: _draw(page.items))
    show_next(page, store, any(given[name] for name in ("queue", "type", "fingerprint")), "No dead letter matches.")


@dead.command()
@queue_option
@system_option
@store_options
def groups(store: StoreOptions, queue: str | None, system: bool) -> None:
    """Group them by what their reasons have in common."""

    async def ask(app: App) -> Groups:
        if queue is not None:
            await known(app, queue)
        return await failure_groups.groups(app, queue, system)

    present(store, store.ask(ask), _draw_groups)


@dead.command()
@queue_option
@type_option
@fingerprint_option
@system_option
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="At most so many a second.")
@dry_run_option
@yes_option
@store_options
def replay(store: StoreOptions, rate: float | None, dry_run: bool, yes: bool, **given: Any) -> None:
    """Make all that match ready again. One alone: accoda job ID retry.

    Ctrl-C stops it: what was made ready by then stays so.
    """
    count = _count(store, given, "retry", dry_run)
    if dry_run:
        return
    confirm(f"Replay {_many(count)}{_where(given)}", yes)

    async def do(app: App) -> BulkView:
        with progress("Replaying", count.n if count.exact else None, quiet=store.as_json) as so_far:
            return await bulk.run(app, "retry", _filter(given), rate=rate, progress=so_far)

    _report(store, store.ask(do))


@dead.command()
@queue_option
@type_option
@fingerprint_option
@system_option
@dry_run_option
@yes_option
@store_options
def delete(store: StoreOptions, dry_run: bool, yes: bool, **given: Any) -> None:
    """Delete all that match, for ever. One alone: accoda job ID delete."""
    count = _count(store, given, "delete", dry_run)
    if dry_run:
        return
    confirm(f"Delete {_many(count)}{_where(given)}", yes)

    async def do(app: App) -> BulkView:
        with progress("Deleting", count.n if count.exact else None, quiet=store.as_json) as so_far:
            return await bulk.run(app, "delete", _filter(given), progress=so_far)

    gone = store.ask(do).changed
    present(store, {"deleted": gone}, lambda _: echo(f"{gone:,} deleted."))


def _count(store: StoreOptions, given: dict[str, Any], action: Action, tell: bool) -> Count:
    """How many match; printed in a dry run, with some of them."""

    async def ask(app: App) -> tuple[Count, list[JobView]]:
        if given["queue"] is not None:
            await known(app, given["queue"])
        wanted = _filter(given)
        samples = await jobs.page(app, wanted, limit=SAMPLES) if tell else None
        return await bulk.count(app, wanted, action), [] if samples is None else samples.items

    count, samples = store.ask(ask)
    if tell and store.as_json:
        echo_json(count)
    if not count.n:
        answer_is_no("No dead letter matches.")
    if tell and not store.as_json:
        say(f"{_many(count)}{_where(given)}; nothing was changed. The latest:")
        _draw(samples)
    return count


def _filter(given: dict[str, Any]) -> JobFilter:
    from accoda.operations.job_filter import JobFilter

    return JobFilter(state="dead", **given)


def _many(count: Count) -> str:
    return f"{'' if count.exact else 'more than '}{count.n:,} dead {'letter' if count.n == 1 else 'letters'}"


def _where(given: dict[str, Any]) -> str:
    queue, type, cause = given["queue"], given["type"], given["fingerprint"]
    return f" of {queue or 'all queues'}" + (f", type {type}" if type else "") + (f" with {cause}" if cause else "")


def _report(store: StoreOptions, done: BulkView) -> None:
    said = f"{done.changed:,} {'is' if done.changed == 1 else 'are'} ready again"
    if done.skipped:
        said += f"; {done.skipped:,} stay dead, because another job holds the key, or are gone"
    present(store, {"revived": done.changed, "skipped": done.skipped}, lambda _: say(f"{said}."))
    if not done.changed:
        raise click.exceptions.Exit(1)


def _draw(found: list[JobView]) -> None:
    moment = now()
    typed = typed_column(found)
    columns: tuple[str | Column, ...] = (Column("id", right=True), Column("queue", cut=True), *typed, "attempt", "died")
    rows = [
        (
            job.id,
            job.queue,
            *([job.type or ""] if typed else []),
            attempt(job),
            ago(job.ended_at, moment),
            job.fingerprint,
            cause(job.reason),
        )
        for job in found
    ]
    table((*columns, "fingerprint", Column("reason", cut=True)), rows)


def _draw_groups(found: Groups) -> None:
    if not found.groups:
        echo("There are none.", err=True)
        return
    moment = now()
    columns = ("fingerprint", Column("count", right=True), Column("queues", cut=True), "last", Column("id", right=True))
    rows = [
        (
            one.fingerprint,
            f"{one.count:,}",
            ", ".join(one.queues),
            ago(one.last_at, moment),
            one.last_id,
            cause(one.reason),
        )
        for one in found.groups
    ]
    table((*columns, Column("last reason", cut=True)), rows)
    if found.partial:
        say(f"Of the latest {found.looked_at:,} of {found.total:,}; --queue reads more of one.", err=True)
