"""Flows: which there are, how far they are, the graph of one, and stopping and repairing it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from accoda.clock import SystemClock
from accoda.dashboard.graph.drawing import WHEN, Drawing, draw, took
from accoda.dashboard.pages.flow_place import jobs_of
from accoda.dashboard.pages.parameters import address
from accoda.dashboard.routes import ActionCall, ActionResult, PageCall, action, page
from accoda.errors import Conflict, InvalidInput
from accoda.flows.listing import Place
from accoda.flows.model import FLOW_STATES, FlowInfo, FlowState, FlowSummary, NodeState
from accoda.flows.why import last_line
from accoda.model import JobInfo, State
from accoda.operations.redaction import reason_of
from accoda.operations.words import many

if TYPE_CHECKING:
    from accoda.app import App

ROWS = 50
"""Flows, or nodes, of a page."""
SORTED = 1000
"""Flows that are read and sorted at a time."""
GRAPH_FIRST = 400
"""Nodes of a flow up to which the graph comes before the table."""
NODE_STATES: tuple[NodeState, ...] = get_args(NodeState)
_CURSOR = re.compile(r"(delayed|ready|taken)\.(-?\d{1,17})\.(\d{1,19})", re.ASCII)
T = TypeVar("T")


@page("/flows", "flows.html", section="flows")
async def flows(call: PageCall) -> dict[str, Any]:
    """Flows, those that were started last first."""
    state, name = _flow_state(call.query.get("state")), call.query.get("name")
    cursor = call.query.get("cursor")
    found, more = await call.app.flows.page(state=state, name=name, limit=SORTED, after=_cursor_of(cursor))
    found = sorted(found, key=lambda flow: flow.created_at, reverse=True)
    shown, number, last = _slice(found, call.query.get("page"))
    asked: dict[str, Any] = {"state": state, "name": name, "cursor": cursor}
    following: str | None
    if number < last:
        following = address("/flows", **asked, page=number + 1)
    else:
        following = address("/flows", **asked | {"cursor": f"{more.state}.{more.sort:.0f}.{more.id}"}) if more else None
    return {
        "flows": shown,
        "bars": {flow.id: _bar(flow) for flow in shown},
        "state": state,
        "name": name or "",
        "tabs": {each: address("/flows", state=each, name=name) for each in (None, *FLOW_STATES)},
        "first": address("/flows", state=state, name=name) if cursor or number > 1 else None,
        "next": following,
        "sorted": SORTED if more or cursor else None,
    }


@page("/flows/{id}", "flow.html", section="flows")
async def flow(call: PageCall) -> dict[str, Any]:
    """One flow: its graph, and its nodes in a table."""
    info = await call.app.flows.get(call.params["id"])
    query, path = call.query, f"/flows/{info.id}"
    state = _node_state(query.get("state"))
    chosen = [node for node in info.nodes.values() if state in (None, node.state)]
    rows, number, last = _slice(chosen, query.get("page"))
    drawing = _draw(call.app, info, query)
    bad = [node for node in info.nodes.values() if node.state in ("dead", "removed")][:3]
    jobs = await jobs_of(call.app, (*rows, *bad, *(info.nodes[box.name] for box in drawing.boxes if box.count == 1)))
    errors = {name: reason_of(call.app, job) for name, job in jobs.items() if job.state == "dead"}
    kept = {name: query.get(name) for name in ("unfold", "column")}
    return {
        "flow": info,
        "bar": _bar(info),
        "counted": _counted(info),
        "graph": drawing,
        "graph_first": len(info.nodes) <= GRAPH_FIRST,
        "links": {box.name: _link(path, query, box.name, box.count, info, jobs) for box in drawing.boxes},
        "folds": address(path, state=state, page=query.get("page")),
        "columns": _columns(path, drawing),
        "jobs": jobs,
        "errors": errors,
        "rows": rows,
        "took": took,
        "when": WHEN,
        "state": state,
        "counts": _counts(info),
        "tabs": {each: address(path, **kept, state=each) for each in (None, *_counts(info))},
        "total": len(chosen),
        "previous": address(path, **kept, state=state, page=number - 1 if number > 2 else None) if number > 1 else None,
        "next": address(path, **kept, state=state, page=number + 1) if number < last else None,
        "page_number": number,
        "page_count": last,
        "bad": [(node, last_line(errors[node.name]) if errors.get(node.name) else "") for node in bad],
    }


def _draw(app: App, info: FlowInfo, query: Mapping[str, str]) -> Drawing:
    now = (app.connections.clock or SystemClock()).now()
    return draw(info.nodes, now, unfold=query.get("unfold"), start=_number("column", query.get("column", "0")))


def _link(
    path: str, query: Mapping[str, str], name: str, count: int, info: FlowInfo, jobs: Mapping[str, JobInfo]
) -> str | None:
    """Where a box leads: to its job, if that is stored; one of several nodes is unfolded."""
    if count > 1:
        return address(path, **{**query, "unfold": name}) + "#graph"
    return f"/jobs/{info.nodes[name].job_id}" if name in jobs else None


def _columns(path: str, drawing: Drawing) -> dict[str, str]:
    """The columns before and after those that are drawn."""
    found = {}
    if drawing.first:
        found["First columns"] = address(path) + "#graph"
    if drawing.end < drawing.columns:
        found["Next columns"] = address(path, column=drawing.end) + "#graph"
    return found


def _counts(info: FlowInfo) -> dict[NodeState, int]:
    """How many nodes the table has in each state."""
    states = [node.state for node in info.nodes.values()]
    return {state: count for state in NODE_STATES if (count := states.count(state))}


def _bar(flow: FlowSummary) -> dict[str, Any]:
    """How far a flow is: ended nodes of all, and the colour for it."""
    ended, total = flow.progress
    bad = flow.state in ("failed", "expired") or flow.counts.get("dead")
    kind = {"done": "", "cancelled": "off"}.get(flow.state, "calm")
    return {"value": ended, "most": total, "kind": "bad" if bad else kind}


def _counted(info: FlowInfo) -> str:
    """What the progress of a flow counts."""
    idle = sum(node.when == "on_cancel" and node.state in ("waiting", "skipped") for node in info.nodes.values())
    if info.progress[1] + idle != len(info.nodes):
        return "members ended"
    return f"nodes ended; {idle:,} more only if it is cancelled" if idle else "nodes ended"


# -- parameters


def _flow_state(text: str | None) -> FlowState | None:
    for state in FLOW_STATES:
        if text == state:
            return state
    if text is not None:
        raise InvalidInput("state", f"must be one of {', '.join(FLOW_STATES)}, not {text!r:.40}")
    return None


def _node_state(text: str | None) -> NodeState | None:
    for state in NODE_STATES:
        if text == state:
            return state
    if text is not None:
        raise InvalidInput("state", f"must be one of {', '.join(NODE_STATES)}, not {text!r:.40}")
    return None


def _number(field: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidInput(field, f"must be a number, not {text!r:.40}")
    return int(text)


def _slice(found: Sequence[T], page: str | None) -> tuple[Sequence[T], int, int]:
    """A page of a list, its number, and that of the last one."""
    last = max(1, -(-len(found) // ROWS))
    number = min(max(1, _number("page", page or "1")), last)
    return found[(number - 1) * ROWS : number * ROWS], number, last


def _cursor_of(text: str | None) -> Place | None:
    if text is None:
        return None
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidInput("cursor", f"must be one that a page of this list gave, not {text!r:.40}")
    return Place(cast(State, found[1]), float(found[2]), int(found[3]))


# -- actions


@action("/do/flows/{id}/cancel")
async def cancel(call: ActionCall) -> ActionResult:
    """Take back what waits, and stop what runs."""
    info = await call.app.flows.summary(call.params["id"])
    if not await call.app.flows.cancel(info.id):
        raise Conflict(f"flow {info.name} is {info.state}: only a running flow can be cancelled")
    return ActionResult(call.back, f"{info.name} is being cancelled.")


@action("/do/flows/{id}/retry")
async def retry(call: ActionCall) -> ActionResult:
    """Revive its dead jobs, so that it goes on from there."""
    info = await call.app.flows.summary(call.params["id"])
    count = await call.app.flows.retry(info.id)
    if not count:
        raise Conflict(f"flow {info.name} has no dead jobs: there is nothing to retry")
    return ActionResult(call.back, f"{many(count, 'dead job')} of {info.name} will run again.")


@action("/do/flows/{id}/close")
async def close(call: ActionCall) -> ActionResult:
    """Close a batch whose producer died before it could."""
    info = await call.app.flows.summary(call.params["id"])
    if not await call.app.flows.close(info.id):
        raise Conflict(f"flow {info.name} is not an open batch: there is nothing to close")
    return ActionResult(call.back, f"{info.name} takes no more members.")
