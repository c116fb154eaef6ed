"""`accoda jobs`: a page of jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import Column, StoreOptions, ago, answer_is_no, echo_json, now, run, say, store_options, table
from accoda.cli.completion import complete_queues
from accoda.cli.known import known

if TYPE_CHECKING:
    from accoda.admin.views import JobView, Page

STATES = ("ready", "delayed", "taken", "dead", "done")
LEVELS = ("CRITICAL", "HIGH", "NORMAL", "LOW")
FILTERS = ("queue", "state", "priority", "key", "error", "field", "name")
level = click.Choice(LEVELS, case_sensitive=False)

queue_option = click.option(
    "-q", "--queue", metavar="NAME", shell_complete=complete_queues, help="Of this queue alone."
)
limit_option = click.option(
    "--limit", type=click.IntRange(1, 1000), metavar="N", default=50, show_default=True, help="At most so many."
)
cursor_option = click.option("--cursor", metavar="TEXT", help="Go on where a page ended.")


@click.command()
@queue_option
@click.option(
    "-s", "--state", type=click.Choice(STATES), metavar="STATE", help=f"{', '.join(STATES[:-1])} or {STATES[-1]}."
)
@click.option("-p", "--priority", type=level, metavar="LEVEL", help="CRITICAL, HIGH, NORMAL or LOW.")
@click.option("--key", metavar="KEY", help="The one of this key.")
@click.option("--error", metavar="TEXT", help="With this in its error, or of this fingerprint.")
@click.option("--field", metavar="FIELD=VALUE", help="With this in its payload: customer.id=42.")
@click.option("--name", metavar="TEXT", help="With this in its name.")
@limit_option
@cursor_option
@click.option("--all", "system", is_flag=True, help="Those of Accoda's own queues too.")
@store_options
def jobs(store: StoreOptions, **given: Any) -> None:
    """List jobs, a page at a time."""
    page = run(_page(store, given))
    if store.as_json:
        echo_json(page)
    elif page.items:
        show_jobs(page.items)
    show_next(page, store, _is_filtered(given), "No job matches.")


async def _page(store: StoreOptions, given: dict[str, Any]) -> Page[JobView]:
    from accoda.admin import jobs as admin

    wanted = admin.JobFilter(**{name: given[name] for name in FILTERS}, system=given["system"])
    async with store.open() as app:
        page = await admin.page(app, wanted, limit=given["limit"], cursor=given["cursor"])
        if not page.items and given["queue"] is not None:
            await known(app, given["queue"])
        return page


def _is_filtered(given: dict[str, Any]) -> bool:
    return any(given[name] is not None for name in FILTERS)


def show_jobs(found: list[JobView]) -> None:
    """A line for each job."""
    moment = now()
    columns = (Column("id", right=True), Column("queue", cut=True), "state", "priority", Column("attempts", right=True))
    table(
        (*columns, "since", Column("what", cut=True)),
        [
            (job.id, job.queue, job.state, job.priority or f"{job.rank:g}", job.attempts, since(job, moment), what(job))
            for job in found
        ],
    )


def show_next(page: Page[Any], store: StoreOptions, filtered: bool, nothing: str) -> None:
    """Say on standard error how to go on, or that there is nothing: with 1 where a filter matched nothing."""
    if page.next and not store.as_json:
        say(f"There are more: add --cursor {page.next}", err=True)
    elif not page.items and page.next is None:
        if filtered:
            answer_is_no(nothing)
        if not store.as_json:
            click.echo("There are none.", err=True)


def since(job: JobView, moment: int) -> str:
    """When the job came into its state, or will leave it."""
    at = {"delayed": job.scheduled_at, "taken": job.taken_at, "dead": job.ended_at, "done": job.ended_at}
    return ago(at.get(job.state) or job.created_at, moment)


def what(job: JobView) -> str:
    """What a person recognises the job by: why it is dead, its name, or its payload."""
    if job.state == "dead" and job.reason:
        return cause(job.reason)
    return job.name or in_json(job.payload)


def cause(reason: str | None) -> str:
    """The part of a reason that differs, for a narrow column.

    >>> cause("failed 5 times, the last time with KeyError: 7")
    'KeyError: 7'
    """
    head, found, rest = (reason or "").partition(" times, the last time with ")
    return rest if found and head.startswith("failed ") else reason or ""


def in_json(value: object, indent: int | None = None) -> str:
    """A value on one line (or several), as it would be written to enqueue it."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
