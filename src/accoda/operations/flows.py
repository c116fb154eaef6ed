"""Flows, as people see, stop and repair them. To start one from a request: `accoda.operations.new_flows`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from accoda.envelope import HIDDEN, unwrap
from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.flows.coordinator import node_job
from accoda.flows.flows import LIVE_SHOWN, Flows, describe, no_such_flow
from accoda.flows.graph import NodeRecord
from accoda.flows.listing import FIRST, Place, place_after, read_records
from accoda.flows.log import FlowLog, summary_of
from accoda.flows.model import FLOW_STATES, KEY_LENGTH, LOG, FlowState, FlowSummary, NodeInfo, NodeState, check_label
from accoda.flows.reading import FlowReader, body_of, live_jobs
from accoda.flows.why import explain, reason_of
from accoda.model import ByKey, JobInfo
from accoda.operations.handlers import handler_of
from accoda.operations.host import Host
from accoda.operations.moments import rfc3339
from accoda.operations.redaction import Redacted, redact
from accoda.operations.search import SearchCursor
from accoda.operations.views import Page, same
from accoda.storage.protocol import Store

EXAMINED = 1000
"""Records that are read for one page, however few of them match."""
AT_ONCE = 200
MOST = 1000
"""Flows on one page."""


class NodeView(Struct, rename="camel", frozen=True, kw_only=True):
    """A node of a flow: a job that starts when the nodes that it comes `after` have ended as `when` says.

    `waiting`: for the nodes before it. `started`: its job is stored; `ready`, `delayed`, `held` (its lane is full) and
    `running` say more of it. `removed`: its job was removed or purged. `skipped`: what it needs can no longer happen.
    `added_by` is the node that added it while it ran. `started_at` is when its job was stored, or revived. Secret
    fields of its result are hidden.
    """

    name: str
    state: NodeState
    queue: str
    type: str | None = None
    job_id: int | None = None
    after: builtins.list[str] = []
    when: str = "all_done"
    added_by: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    error: str | None = None
    result: Any = None


class FlowView(Struct, rename="camel", frozen=True, kw_only=True):
    """A flow in a list. `counts` says how many nodes are in each state; of those that run, all are `started`.

    `ended` of `total` nodes have ended; of a batch, of its members. `open`: a batch that may get more members.
    """

    id: str
    name: str
    state: FlowState
    created_at: str
    ended_at: str | None = None
    deadline: str | None = None
    counts: dict[str, int] = {}
    ended: int = 0
    total: int = 0
    open: bool = False


class FlowDetail(FlowView, rename="camel", frozen=True, kw_only=True):
    """A flow with its nodes, in the order in which they were added.

    `nodes_next` is the name after which the next page of them begins; null: these were the last.
    """

    nodes: builtins.list[NodeView] = []
    nodes_next: str | None = None


class NodeWhy(Struct, rename="camel", frozen=True, kw_only=True):
    """What a node waits for, in a sentence. One whose job is stored: ask why that job is not running."""

    flow: str
    node: str
    state: NodeState
    line: str
    job_id: int | None = None


async def page(
    host: Host, *, state: FlowState | None = None, name: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[FlowView]:
    """Flows that match: first those that run without a deadline and failed ones that can be retried, then the others
    by the moment of their deadline or of the end of their keeping.

    A page may be shorter than `limit`, or empty, and still have a next one: at most 1,000 records are read for it.
    """
    if state is not None and state not in FLOW_STATES:
        raise InvalidInput("state", f"must be one of {', '.join(FLOW_STATES)}, not {state!r:.60}")
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise InvalidInput("limit", f"must be an integer from 1 to {MOST}, not {limit!r:.60}")
    place: Place | None = FIRST if cursor is None else _place_of(cursor)
    store = await host.connections.get()
    found: builtins.list[FlowView] = []
    examined = 0
    while place is not None and examined < EXAMINED:
        records, following = await read_records(store, place, min(AT_ONCE, EXAMINED - examined))
        for record in records:
            flow = _summary(record)
            if flow is not None and state in (None, flow.state) and name in (None, flow.name):
                if len(found) == limit:
                    return Page(found, _token(place))
                found.append(flow_view(flow))
            place = place_after(record)
        examined += len(records)
        place = following
    return Page(found, None if place is None else _token(place))


async def get(host: Host, id: str, *, after: str | None = None, limit: int | None = None) -> FlowDetail:
    """A flow with its nodes: all, or a page of at most `limit` of those that were added `after` one.

    Raises `NotFound`.
    """
    store, log = await _read(host, id)
    every = [node for node in log.graph.nodes if node.spec.kind != "gate"]
    if after is not None and after not in log.graph.by_name:
        raise InvalidInput("nodesAfter", f"flow {id!r} has no node {after!r:.60}; use the nodesNext of a page as it is")
    begin = 0 if after is None else sum(node.number <= log.graph.by_name[after].number for node in every)
    shown = every[begin:] if limit is None else every[begin : begin + limit]
    live = [node for node in shown if node.state == "started"]
    jobs = await live_jobs(store, id, live) if len(live) <= LIVE_SHOWN else {}
    info = describe(log, jobs, {})
    nodes = [await _node(host, store, log, node, info.nodes[node.spec.name]) for node in shown]
    rest = len(every) > begin + len(shown)
    return FlowDetail(**_facts(info), nodes=nodes, nodes_next=shown[-1].spec.name if rest and shown else None)


async def summary(host: Host, id: str) -> FlowView:
    """A flow without its nodes. Raises `NotFound`."""
    return flow_view(await (await _flows(host, id)).summary(id))


async def queues(host: Host, id: str) -> set[str]:
    """The queues of a flow's nodes. Raises `NotFound`."""
    _, log = await _read(host, id)
    return {node.spec.queue for node in log.graph.nodes if node.spec.kind != "gate"}


async def cancel(host: Host, id: str) -> FlowView:
    """Stop a flow: what waits is taken back, and what runs loses its lease. The flow as it is before that."""
    if not await (await _flows(host, id)).cancel(id):
        raise Conflict(
            f"flow {id!r} has ended ({(await summary(host, id)).state}): only one that runs can be cancelled"
        )
    return await summary(host, id)


async def close(host: Host, id: str) -> FlowView:
    """Close a batch whose producer died before it could. The batch as it is before that."""
    if not await (await _flows(host, id)).close(id):
        raise Conflict(f"flow {id!r} is no open batch: only a batch that may get more members can be closed")
    return await summary(host, id)


async def retry(host: Host, id: str) -> int:
    """Revive the dead jobs of a flow, so that it goes on from there; how many."""
    count = await (await _flows(host, id)).retry(id)
    if not count:
        raise Conflict(f"flow {id!r} ({(await summary(host, id)).state}) has no dead job: there is nothing to retry")
    return count


async def why(host: Host, id: str, node: str) -> NodeWhy:
    """What a node waits for, without the secrets of those that it comes after."""
    store, log = await _read(host, id)
    found = log.graph.by_name.get(node)
    if found is None or found.spec.kind == "gate":
        raise NotFound("node", node, f"accoda flow {id} lists those of this flow")
    before = [one for one in (found, *log.graph.parents(found)) if one.state == "started"]
    jobs = await live_jobs(store, id, before[:LIVE_SHOWN])
    now = (await store.look(ByKey(LOG, id))).at
    line = explain(log.graph, found, jobs, now, lambda one: _error(host, log, one) or "")
    shown = describe(log, jobs, {}).nodes[node]
    return NodeWhy(flow=id, node=node, state=shown.state, line=line, job_id=shown.job_id)


def flow_view(flow: FlowSummary) -> FlowView:
    return FlowView(**_facts(flow))


def _facts(flow: FlowSummary) -> dict[str, Any]:
    return {
        **same(flow, "id name state counts open"),
        "created_at": rfc3339(flow.created_at),
        "ended_at": rfc3339(flow.ended_at),
        "deadline": rfc3339(flow.deadline),
        "ended": flow.progress[0],
        "total": flow.progress[1],
    }


async def _node(host: Host, store: Store, log: FlowLog, node: NodeRecord, info: NodeInfo) -> NodeView:
    body = await body_of(store, log.id, node.report) if node.state == "done" and node.report is not None else None
    return NodeView(
        **same(info, "name state queue type job_id when added_by"),
        after=[*info.after],
        started_at=rfc3339(info.started_at),
        ended_at=rfc3339(info.ended_at),
        error=_error(host, log, node),
        result=None if body is None else _redacted(host, log, node, body).result,
    )


def _error(host: Host, log: FlowLog, node: NodeRecord) -> str | None:
    """Why a node is dead, without the secrets of its payload."""
    reason = reason_of(node)
    if not reason:
        return None
    job = node_job(log, node)
    place = unwrap(job.data)[0].flow
    if place is not None and place.read and place.takes_results and _secrets(host, node):
        return HIDDEN  # its payload was put together when it was taken: what may be quoted of it is not known
    return _redacted(host, log, node, None).mask.text(reason)


def _redacted(host: Host, log: FlowLog, node: NodeRecord, result: bytes | None) -> Redacted:
    metadata, payload = unwrap(node_job(log, node).data)
    return redact(handler_of(host, node.spec.queue, metadata.type), metadata.secret, payload, result)


def _secrets(host: Host, node: NodeRecord) -> Sequence[str]:
    metadata = unwrap(node.spec.data)[0]
    handler = handler_of(host, node.spec.queue, metadata.type)
    return (*metadata.secret, *(() if handler is None else handler.options.secret))


async def _read(host: Host, id: str) -> tuple[Store, FlowLog]:
    _check(id)
    store = await host.connections.get()
    log = await FlowReader().read(store, id)
    if log is None:
        raise no_such_flow(id)
    return store, log


async def _flows(host: Host, id: str) -> Flows:
    _check(id)
    store = await host.connections.get()
    return Flows(lambda: store)


def _check(id: str) -> None:
    """Refuse what no store could look up."""
    try:
        check_label("id", id, KEY_LENGTH)
    except InvalidInput:
        raise no_such_flow(id) from None


def _summary(record: JobInfo) -> FlowSummary | None:
    try:
        return summary_of(record).public(record.key or "", record.created_at)
    except ValueError:  # not one of ours
        return None


def _token(place: Place) -> str:
    return SearchCursor(LOG, place.state, place.sort, place.id).token()


def _place_of(token: str) -> Place:
    cursor = SearchCursor.read(token)
    if cursor.queue != LOG or cursor.state not in ("delayed", "ready", "taken"):
        raise InvalidInput("cursor", "is of another list; use the `next` of a page of flows as it is")
    return Place(cursor.state, cursor.sort, cursor.id)
