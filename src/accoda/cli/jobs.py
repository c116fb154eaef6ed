"""`accoda jobs`: a page of jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import StoreOptions, answer_is_no, echo_json, known, store_options
from accoda.cli.completion import complete_queues
from accoda.cli.draw import Column, echo, now, say, table
from accoda.cli.words import ago
from accoda.operations.words import state_word

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations.views import JobView, Page

STATES = ("ready", "delayed", "held", "taken", "dead", "done", "cancelled")
RUNNING = "running"
LEVELS = ("CRITICAL", "HIGH", "NORMAL", "LOW")
FILTERS = ("queue", "type", "lane", "state", "priority", "key", "error", "fingerprint", "field", "name")
level = click.Choice(LEVELS, case_sensitive=False)

queue_option = click.option(
    "-q", "--queue", metavar="NAME", shell_complete=complete_queues, help="Of this queue alone."
)
type_option = click.option("-t", "--type", metavar="TYPE", help="Of this type alone.")
limit_option = click.option(
    "--limit", type=click.IntRange(1, 1000), metavar="N", default=50, show_default=True, help="At most so many."
)
MOMENTS = {"ready": "enqueued", "delayed": "starts", "held": "enqueued", "taken": "started"} | dict.fromkeys(
    STATES[4:], "ended"
)
"""What the moment of a job in a state is, see `since`."""
_WORDS = "ready, delayed, held, running, dead, done or cancelled."


class StateChoice(click.Choice[str]):
    """A state of a job. People say `running`; programs, and records for them, say `taken`."""

    def __init__(self) -> None:
        super().__init__((*STATES, RUNNING))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = super().convert(value, param, ctx)
        return "taken" if found == RUNNING else found


state_option = partial(click.option, "-s", "--state", type=StateChoice(), metavar="STATE", help=_WORDS)
cursor_option = click.option("--cursor", metavar="TEXT", help="Continue where a page ended.")
system_option = click.option("--all", "system", is_flag=True, help="Those of system queues too.")


@click.command()
@queue_option
@type_option
@click.option("--lane", metavar="LANE", help="Of this lane alone.")
@state_option()
@click.option("-p", "--priority", type=level, metavar="LEVEL", help="CRITICAL, HIGH, NORMAL or LOW.")
@click.option("--key", metavar="KEY", help="The one of this key.")
@click.option("--error", metavar="TEXT", help="With this in its error, or of this fingerprint.")
@click.option("--field", metavar="FIELD=VALUE", help="With this in its payload: customer.id=42.")
@click.option("--name", metavar="TEXT", help="With this in its name.")
@limit_option
@cursor_option
@system_option
@store_options
def jobs(store: StoreOptions, **given: Any) -> None:
    """List jobs, a page at a time.

    Ready jobs as they will run, held ones by rank, delayed ones by their
    start, running ones by the end of their lease, those that have ended
    latest first. Jobs of several queues in one state are merged by that
    moment; ready and held ones, and jobs in several states, are listed queue
    by queue.

    A job that was given a key of your own: accoda jobs -q QUEUE --key KEY
    """
    page = page_of(store, given)
    if store.as_json:
        echo_json(page)
    elif page.items:
        show_jobs(page.items, given["state"])
    show_next(page, store, any(given[name] is not None for name in FILTERS if name in given), "No job matches.")


def page_of(store: StoreOptions, given: dict[str, Any], **more: Any) -> Page[JobView]:
    """The page that the options ask for."""

    async def ask(app: App) -> Page[JobView]:
        from accoda.operations.job_filter import JobFilter
        from accoda.operations.jobs import page

        wanted = JobFilter(**{name: given[name] for name in FILTERS if name in given}, system=given["system"], **more)
        found = await page(app, wanted, limit=given["limit"], cursor=given["cursor"])
        if not found.items and given["queue"] is not None:
            await known(app, given["queue"])
        return found

    return store.ask(ask)


def show_jobs(found: list[JobView], state: str | None = None) -> None:
    """A line for each job. Those in one `state` need no column for it, and have those that tell their order."""
    moment = now()
    cells: list[tuple[str | Column, Callable[[JobView], object]]] = [
        (Column("id", right=True), lambda job: job.id),
        (Column("queue", cut=True), lambda job: job.queue),
        *((column, lambda job: job.type or "") for column in typed_column(found)),
        *([(Column("lane", cut=True), lambda job: job.lane or "")] if any(job.lane for job in found) else []),
    ]
    if state is None:
        cells.append(("state", lambda job: state_word(job.state)))
    if state == "ready" and any(job.has_own_rank for job in found):
        cells += [("priority", lambda job: job.priority or ""), (Column("rank", right=True), rank)]
    else:
        cells.append(("priority", lambda job: job.priority or rank(job)))
    cells.append(("attempt", attempt))
    if state == "taken":
        cells.append((Column("worker", cut=True), lambda job: job.worker or ""))
    cells.append((MOMENTS.get(state or "", "since"), lambda job: since(job, moment)))
    if state == "taken":
        cells.append(("lease", lambda job: ago(job.lease_until, moment)))
    cells.append((Column("what", cut=True), what))
    table([column for column, _ in cells], [[cell(job) for _, cell in cells] for job in found])


def rank(job: JobView) -> str:
    """A rank with all of its digits: one of an aging queue is a moment in milliseconds."""
    return f"{job.rank:.15g}"


def typed_column(found: list[JobView]) -> list[Column]:
    """The column for types, if one of the jobs has one: most queues have jobs of one kind only."""
    return [Column("type", cut=True)] if any(job.type for job in found) else []


def show_next(page: Page[Any], store: StoreOptions, filtered: bool, nothing: str) -> None:
    """Say on standard error how to go on, or that there is nothing: with 1 if a filter matched nothing."""
    if page.next and not store.as_json:
        say(f"There are more: add --cursor {page.next}", err=True)
    elif not page.items and page.next is None:
        if filtered:
            answer_is_no(nothing)
        if not store.as_json:
            echo("There are none.", err=True)


def since(job: JobView, moment: int) -> str:
    """When the job came into its state, or will leave it."""
    at = {"delayed": job.scheduled_at, "taken": job.taken_at, "ready": None}.get(job.state, job.ended_at)
    return ago(at or job.created_at, moment)


def attempt(job: JobView) -> str:
    """Which attempt it is, for a column of that title."""
    return job.attempt_text.removeprefix("attempt ")


def what(job: JobView) -> str:
    """What a person recognises the job by: why it is dead, or runs alone; its name, or its payload."""
    if job.state == "dead" and job.reason:
        return cause(job.reason)
    if job.crash_text and job.state in ("ready", "delayed", "held"):
        return job.crash_text[max(0, job.crash_text.find("quarantined")) :]
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
