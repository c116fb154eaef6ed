"""Why a node of a flow is not running, in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accoda.flows.graph import FlowGraph, NodeRecord
from accoda.flows.model import ENDED_NODE
from accoda.model import JobInfo

NAMED = 5
"""Nodes that a sentence names."""
_OF_THE_DEAD = {"all_done": "the dead ones are", "any_done": "one of the dead is"}
Reason = Callable[[NodeRecord], str]
"""Why the job of a node is dead; empty if it is not. For people, without its secrets."""


def explain(graph: FlowGraph, node: NodeRecord, jobs: dict[str, JobInfo], now: int, reason: Reason) -> str:
    """What a node waits for: "waits for 2 of 5: reserve-3 (running 4 s), reserve-4 (dead: out of stock)".

    `jobs` are those of the nodes before it that were started, by the nodes' names. A skipped node waits no longer,
    unless a dead one before it is revived.
    """
    if node.state == "started":
        return "its job is stored: ask why the job waits"
    if node.state == "waiting" and node.number in graph.startable:
        return "may start: its job is about to be stored"
    if node.state == "waiting" and node.spec.kind == "on_cancel":
        return "runs only if the flow is cancelled or expires"
    if node.state not in ("waiting", "skipped"):
        return f"is {_state(node, None, now, reason)}"
    before = graph.parents(node)
    lacking = [one for one in before if _is_lacking(node, one)]
    if node.state == "waiting":
        if not lacking:
            return "waits for the batch to be closed" if graph.open else "waits for nothing"
        return f"{_waits(node, lacking, before)}: {_named(lacking, jobs, now, reason)}"
    dead = [one for one in lacking if one.state == "dead"]
    final = [one for one in lacking if one.state in ("cancelled", "removed")]
    if not dead or graph.stopped is not None or (final and node.spec.when == "all_done"):
        ended = [one for one in lacking if one.state in ENDED_NODE]
        return f"is skipped: it needs {_needs(node, before)}: {_named(ended, jobs, now, reason)}"
    which = f"{dead[0].spec.name} is" if len(dead) == 1 else _OF_THE_DEAD[node.spec.when]
    says = f"{_waits(node, lacking, before)}: {_named(lacking, jobs, now, reason)}"
    return f"{says}; it is skipped unless {which} revived"


def reason_of(node: NodeRecord) -> str:
    """Why the job of a node is dead, as the store tells it; empty if it is not."""
    return node.report.body.decode(errors="replace") if node.report is not None and node.report.kind == "dead" else ""


def last_line(reason: str) -> str:
    """What a reason comes down to: the last line of a traceback."""
    lines = reason.strip().splitlines()
    return lines[-1][:80] if lines else "no reason given"


def _is_lacking(node: NodeRecord, before: NodeRecord) -> bool:
    """Whether it is not yet, or no longer, what a node after it needs."""
    when = node.spec.when
    if when == "all_ended":
        return before.state not in ENDED_NODE
    return before.state != ("dead" if when == "any_dead" else "done")


def _waits(node: NodeRecord, lacking: Sequence[NodeRecord], before: Sequence[NodeRecord]) -> str:
    if node.spec.when in ("all_done", "all_ended"):
        return f"waits for {len(lacking):,} of {len(before):,}"
    return f"waits for {_needs(node, before)}"


def _needs(node: NodeRecord, before: Sequence[NodeRecord]) -> str:
    every, state = node.spec.when.split("_")
    if len(before) == 1:
        return f"this to be {state}"
    return f"{'all' if every == 'all' else 'one'} of {len(before):,} to be {state}"


def _named(nodes: Sequence[NodeRecord], jobs: dict[str, JobInfo], now: int, reason: Reason) -> str:
    """Nodes with their states; of many, first those that ended badly, then those that run."""
    if len(nodes) > NAMED:
        nodes = sorted(nodes, key=lambda one: (one.state not in ENDED_NODE, one.spec.name not in jobs))
    shown = ", ".join(f"{one.spec.name} ({_state(one, jobs.get(one.spec.name), now, reason)})" for one in nodes[:NAMED])
    return f"{shown} and {len(nodes) - NAMED:,} more" if len(nodes) > NAMED else shown


def _state(node: NodeRecord, job: JobInfo | None, now: int, reason: Reason) -> str:
    if node.state == "dead":
        why = reason(node)
        return f"dead: {last_line(why)}" if why.strip() else "dead"
    if job is None:
        return node.state
    if job.state == "taken":
        return f"running {max(0, now - (job.taken_at or now)) / 1000:.0f} s"
    return job.state
