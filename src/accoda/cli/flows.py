"""`accoda flows`: jobs that depend on each other: list them, retry, cancel, close a batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from accoda.cli.common import StoreOptions, echo_json, lazily, present, store_options
from accoda.cli.completion import complete_flows
from accoda.cli.draw import Column, now, say, table
from accoda.cli.groups import Defaulting, near
from accoda.cli.jobs import cursor_option, limit_option, show_next
from accoda.cli.words import ago
from accoda.errors import NotFound
from accoda.operations.words import many

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations import flows as operations
    from accoda.operations.flows import FlowView
    from accoda.operations.views import Page
else:
    operations = lazily("accoda.operations.flows")

T = TypeVar("T")

id_argument = click.argument("id", shell_complete=complete_flows)
STATES = ("running", "done", "failed", "cancelled", "expired")
_WORDS = "running, done, failed, cancelled or expired."


@click.group(cls=Defaulting)
def flows() -> None:
    """Jobs that depend on each other.

    Without a command: list. One with its graph: accoda flow ID
    """


@flows.command("list")
@click.option("-s", "--state", type=click.Choice(STATES), metavar="STATE", help=_WORDS)
@click.option("--name", metavar="NAME", help="Of this name.")
@limit_option
@cursor_option
@store_options
def list_(store: StoreOptions, **given: Any) -> None:
    """List flows, a page at a time.

    First those that run without a deadline, and failed ones that can be
    retried; then the others, by their deadline or until when they are kept.
    """
    page: Page[FlowView] = store.ask(lambda app: operations.page(app, **given))
    if store.as_json:
        echo_json(page)
    elif page.items:
        _draw(page.items)
    filtered = given["state"] is not None or given["name"] is not None
    show_next(page, store, filtered, "No flow matches.")


@flows.command()
@id_argument
@store_options
def retry(store: StoreOptions, id: str) -> None:
    """Revive its dead jobs, so that it goes on from there."""
    count = store.ask(lambda app: known_flow(app, id, lambda app: operations.retry(app, id)))
    told = f"{many(count, 'dead job')} of {id} {'is' if count == 1 else 'are'} ready to run."
    present(store, {"id": id, "revived": count}, lambda _: say(told))


@flows.command()
@id_argument
@store_options
def cancel(store: StoreOptions, id: str) -> None:
    """Take back what waits, and stop what runs."""
    flow = store.ask(lambda app: known_flow(app, id, lambda app: operations.cancel(app, id)))
    present(store, flow, lambda flow: say(f"{id} is being cancelled; {flow.ended} of {flow.total} had ended."))


@flows.command()
@id_argument
@store_options
def close(store: StoreOptions, id: str) -> None:
    """Close a batch whose producer died before it could."""
    flow = store.ask(lambda app: known_flow(app, id, lambda app: operations.close(app, id)))
    present(store, flow, lambda flow: say(f"{id} gets no more members; it has {flow.total}."))


async def known_flow(app: App, id: str, act: Callable[[App], Awaitable[T]]) -> T:
    """Do something with a flow; if there is none of that id, say which one may be meant."""
    try:
        return await act(app)
    except NotFound as error:
        if error.kind != "flow":
            raise
        ids = [flow.id for flow in (await operations.page(app, limit=1000)).items]
        raise NotFound("flow", id, near(id, ids) or "accoda flows lists all of them") from None


def _draw(found: list[FlowView]) -> None:
    moment = now()
    progress = Column("ended", right=True)
    table(
        ["id", Column("name", cut=True), "state", progress, "started", "deadline"],
        [
            (
                flow.id,
                flow.name,
                state_of(flow),
                progress_of(flow),
                ago(flow.created_at, moment),
                ago(flow.deadline, moment),
            )
            for flow in found
        ],
    )


def state_of(flow: FlowView) -> str:
    return f"{flow.state}, open" if flow.open else flow.state


def progress_of(flow: FlowView) -> str:
    return f"{flow.ended:,} of {flow.total:,}"
