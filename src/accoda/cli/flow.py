"""`accoda flow ID`: the graph of one flow, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import StoreOptions, lazily, present, store_options
from accoda.cli.draw import Column, card, echo, now, say, table
from accoda.cli.flow_tree import Line, draw_tree
from accoda.cli.flows import id_argument, known_flow, progress_of, state_of
from accoda.cli.jobs import cause
from accoda.cli.words import ago, moment, stamp
from accoda.operations.words import length, listed

if TYPE_CHECKING:
    from accoda.operations import flows as operations
    from accoda.operations.flows import FlowDetail, NodeView
else:
    operations = lazily("accoda.operations.flows")

NAMED = 2
"""How many other nodes that a node comes after are named; of more, only the first is."""


@click.command()
@id_argument
@click.option("--all", "every", is_flag=True, help="Every node, also of many that are alike.")
@store_options
def flow(store: StoreOptions, id: str, every: bool) -> None:
    """Show the flow ID: how far it is, and its graph.

    Each node is below the last of those that it comes after, and the others
    are named. Of many that are alike only a few are shown.
    """
    found = store.ask(lambda app: known_flow(app, id, lambda app: operations.get(app, id)))
    present(store, found, lambda flow: _draw(flow, every))


def _draw(flow: FlowDetail, every: bool) -> None:
    at = now()
    card(
        f"flow {flow.id}" + (f": {flow.name}" if flow.name != flow.id else ""),
        [
            ("state", state_of(flow)),
            ("ended", progress_of(flow)),
            ("nodes", ", ".join(f"{count:,} {state}" for state, count in flow.counts.items())),
            ("started", f"{stamp(flow.created_at)}, {ago(flow.created_at, at)}"),
            ("took", _between(flow.created_at, flow.ended_at)),
            ("deadline", f"{stamp(flow.deadline)}, {ago(flow.deadline, at)}" if flow.deadline else None),
        ],
    )
    if flow.nodes:
        echo()
        numbers = Column("job", right=True), Column("took", right=True)
        columns = [Column("node", cut=True), Column("state"), *numbers, Column("", cut=True)]
        table(columns, [_row(line, at) for line in draw_tree(flow.nodes, fold=not every)])
    _advise(flow)


def _row(line: Line, at: int) -> tuple[object, ...]:
    node = line.node
    if node is None:
        return f"{line.lead}… {line.left_out:,} more {line.state}", "", "", "", ""
    return f"{line.lead}{node.name}", node.state, node.job_id, _took(node, at), _words(node, line.others)


def _words(node: NodeView, others: tuple[str, ...]) -> str:
    """Why it is dead, or else what it comes after beside the node above it, and when it runs."""
    if node.error:
        from accoda.flows.why import last_line

        return cause(last_line(node.error))
    after = f"also after {listed([*others], NAMED if len(others) <= NAMED else 1)}" if others else ""
    return ", ".join(part for part in (node.when if node.when != "all_done" else "", after) if part)


def _took(node: NodeView, at: int) -> str:
    if node.started_at is None:
        return ""
    if node.ended_at is None:
        return length(max(0, at - moment(node.started_at)) / 1000)
    return _between(node.started_at, node.ended_at) or ""


def _between(begin: str, end: str | None) -> str | None:
    return None if end is None else length(max(0, moment(end) - moment(begin)) / 1000)


def _advise(flow: FlowDetail) -> None:
    """What can be done about it."""
    dead = flow.counts.get("dead", 0)
    if dead:
        which = next(node for node in flow.nodes if node.state == "dead")
        say(f"\nWhy {which.name} is dead: accoda job {which.job_id}. Retry: accoda flows retry {flow.id}")
    elif flow.open:
        say(f"\nIt may get more members. If its producer died: accoda flows close {flow.id}")
