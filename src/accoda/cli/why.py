"""`accoda why ID`: why a job is not running, and when it will; of a node of a flow, what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import StoreOptions, lazily, present, store_options
from accoda.cli.draw import echo, paragraph, style
from accoda.cli.flows import known_flow
from accoda.cli.words import stamp
from accoda.operations.words import state_word

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations import flows
    from accoda.operations import why as operations
    from accoda.operations.flows import NodeWhy
    from accoda.operations.why import Explanation
else:
    flows = lazily("accoda.operations.flows")
    operations = lazily("accoda.operations.why")

WAITING = ("ready", "delayed", "held", "running")
"""States of a node whose job can be asked about."""
MARKS = {"open": ("✓", "green"), "shut": ("✗", "red"), "note": ("·", None)}


_NUMBER = click.IntRange(0, 2**63 - 1)


class JobOrNode(click.ParamType[int | tuple[str, str]]):
    """The number of a job, or FLOW/NODE: neither has a slash in its name."""

    name = "job or node"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[str, str]:
        flow, slash, node = value.partition("/")
        return (flow, node) if slash else _NUMBER(value, param, ctx)


@click.command()
@click.argument("id", type=JobOrNode())
@store_options
def why(store: StoreOptions, id: int | tuple[str, str]) -> None:
    """Say why the job ID is not running, and when it will.

    The first line is the answer. Then what may block it: ✓ OK, ✗ blocked,
    · info. Then when it is likely to start, and what would help.

    Of a node of a flow, whether it has a job yet or not: accoda why FLOW/NODE
    """
    present(store, store.ask(lambda app: _ask(app, id)), _draw)


async def _ask(app: App, id: int | tuple[str, str]) -> Explanation | NodeWhy:
    """The answer for a job. A node has one, unless it has not started or its job has ended."""
    if isinstance(id, int):
        return await operations.why(app, id)
    answer = await known_flow(app, id[0], lambda app: flows.why(app, *id))
    if answer.job_id is not None and answer.state in WAITING:
        return await operations.why(app, answer.job_id)
    return answer


def _draw(answer: Explanation | NodeWhy) -> None:
    if not isinstance(answer, operations.Explanation):
        colon = ":" if answer.line.startswith("its ") else ""
        paragraph(f"{answer.node} of flow {answer.flow}{colon} {answer.line}", bold=True)
        return
    paragraph(f"job {answer.id} of {answer.queue} ({state_word(answer.state)}): {answer.line}", bold=True)
    echo()
    names = [state_word(gate.name) for gate in answer.gates]
    wide = max(map(len, names))
    for name, gate in zip(names, answer.gates, strict=True):
        mark, colour = MARKS[gate.verdict]
        head = ("  ", style(mark, colour), f" {name.ljust(wide)}  ")
        paragraph(gate.text, head, wide + 6)
    place = f"{answer.flow}, node {answer.node}" if answer.flow else ""
    facts = [
        ("flow", place),
        ("position", _position(answer)),
        ("start", _start(answer)),
        *(("sooner", one) for one in answer.sooner),
    ]
    known = [(name, text) for name, text in facts if text]
    if known:
        echo()
    said = ""
    for name, text in known:
        paragraph(text, ("  ", style(("" if name == said else name).ljust(8), dim=True), "  "), 12)
        said = name


def _position(answer: Explanation) -> str:
    if answer.position is None:
        return ""
    if answer.ahead_is_more:
        return f"{answer.position:,} or later"
    return "1, the next" if answer.position == 1 else f"{answer.position:,}"


def _start(answer: Explanation) -> str:
    if answer.start is None:
        return ""
    moment = answer.start.low_at if answer.ahead_is_more else answer.start.likely_at
    return f"{answer.start.text}, at {stamp(moment)}{' or later' if answer.ahead_is_more else ''}"
