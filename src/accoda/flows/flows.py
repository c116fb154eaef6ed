"""`app.flows`: what flows there are, how they are doing, and how to stop and repair them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal

from accoda.clock import SystemClock
from accoda.envelope import type_of
from accoda.errors import FlowEnded, FlowTimeout, InvalidInput, NotFound
from accoda.flows.graph import FlowGraph, NodeRecord
from accoda.flows.listing import FIRST, Place, place_after, read_records
from accoda.flows.log import Close, FlowLog, Stop, notes, summary_of
from accoda.flows.model import (
    FLOW_STATES,
    LOG,
    FlowInfo,
    FlowState,
    FlowSummary,
    NodeInfo,
    NodeState,
)
from accoda.flows.reading import FlowReader, body_of, live_jobs
from accoda.flows.why import explain, last_line, reason_of
from accoda.model import ByKey, JobInfo, NewJob, Revive
from accoda.payload import decode
from accoda.storage.protocol import Store

FIRST_LOOK, LAST_LOOK = 0.005, 0.25
"""Seconds between two looks at a flow that is waited for: soon at first, then less and less often."""
LIVE_SHOWN = 1000
"""Nodes of a flow up to which their jobs are looked at one by one; of more, those that run are only `started`."""
_STATES: dict[str, NodeState] = {"ready": "ready", "delayed": "delayed", "held": "held", "taken": "running"}


class Flows:
    """The flows of an app's store."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    async def get(self, id: str) -> FlowInfo:
        """A flow with all its nodes. Raises `NotFound`."""
        store = self._store()
        log = await FlowReader().read(store, id)
        if log is None:
            raise no_such_flow(id)
        live = log.graph.live()
        jobs = await live_jobs(store, id, live) if len(live) <= LIVE_SHOWN else {}
        results = {node.spec.name: await _result(store, id, node) for node in log.graph.nodes if node.state == "done"}
        return describe(log, jobs, results)

    async def summary(self, id: str) -> FlowSummary:
        """A flow without its nodes: one look. Raises `NotFound`."""
        record = (await self._store().look(ByKey(LOG, id))).job
        if record is None:
            raise no_such_flow(id)
        return _public(record)

    async def list(
        self,
        *,
        state: FlowState | None = None,
        name: str | None = None,
        limit: int = 100,
        after: Place | None = None,
    ) -> Sequence[FlowSummary]:
        """Flows: first those that wait for no moment (they run without a deadline, or failed), then the others."""
        return (await self.page(state=state, name=name, limit=limit, after=after))[0]

    async def page(
        self, *, state: FlowState | None = None, name: str | None = None, limit: int = 100, after: Place | None = None
    ) -> tuple[Sequence[FlowSummary], Place | None]:
        """A page of flows, and where the next one begins; None: that was all. See `accoda.flows.listing`."""
        if state is not None and state not in FLOW_STATES:
            raise InvalidInput("state", f"must be one of {', '.join(FLOW_STATES)}, not {state!r:.60}")
        store, found = self._store(), deque[FlowSummary]()
        place: Place | None = after or FIRST
        while place is not None:
            records, following = await read_records(store, place)
            for record in records:
                summary = _readable(record)
                if summary is None or state not in (None, summary.state) or name not in (None, summary.name):
                    continue
                found.append(summary)
                if len(found) >= limit:
                    return [*found], place_after(record)
            place = following
        return [*found], None

    async def result(self, id: str, *, timeout: float | None = None) -> Any:
        """Wait until a flow is done, and give what its last node returned; of several last nodes, a dict by name.

        Raises `FlowEnded` if it failed, was cancelled or has expired, `FlowTimeout` if it takes longer.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK
        while (summary := await self.summary(id)).state == "running":
            if deadline is not None and time.monotonic() >= deadline:
                raise FlowTimeout(id, timeout or 0.0)
            await asyncio.sleep(pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(LAST_LOOK, pause * 1.5)
        info = await self.get(id)
        if summary.state != "done":
            raise FlowEnded(id, summary.state, _problem(info))
        results = {name: node.result for name in info.last if (node := info.nodes[name]).state == "done"}
        return next(iter(results.values())) if len(info.last) == 1 and results else results

    async def cancel(self, id: str) -> bool:
        """Stop a flow: what waits is taken back, what runs loses its lease, and its `on_cancel` nodes run.

        False: it has ended already. Raises `NotFound`.
        """
        if (await self.summary(id)).state != "running":
            return False
        await self._store().enqueue(notes(id, Stop()))
        return True

    async def close(self, id: str) -> bool:
        """Close a batch whose producer died before it could. False: it is not open. Raises `NotFound`."""
        if not (await self.summary(id)).open:
            return False
        await self._store().enqueue(notes(id, Close()))
        return True

    async def retry(self, id: str) -> int:
        """Revive the dead jobs of a flow, so that it goes on from there; how many. Raises `NotFound`."""
        store = self._store()
        log = await FlowReader().read(store, id)
        if log is None:
            raise no_such_flow(id)
        dead = [Revive(node.job_id, queue=node.spec.queue) for node in log.graph.dead() if node.job_id is not None]
        return await store.change(dead) if dead else 0

    async def why(self, id: str, node: str) -> str:
        """What a node waits for, in a sentence. Raises `NotFound`."""
        store = self._store()
        log = await FlowReader().read(store, id)
        if log is None:
            raise no_such_flow(id)
        found = log.graph.by_name.get(node)
        if found is None:
            raise InvalidInput("node", f"flow {id!r} has no node {node!r}; accoda flow {id} lists them")
        before = log.graph.parents(found)
        jobs = await live_jobs(store, id, [one for one in before if one.state == "started"][:LIVE_SHOWN])
        now = (await store.look(ByKey(LOG, id))).at
        return explain(log.graph, found, jobs, now, reason_of)


def to_be_started(id: str, jobs: Sequence[NewJob]) -> FlowInfo:
    """A flow as it will be when these jobs, which `Flow.jobs` gave, are stored."""
    record, now = jobs[0], SystemClock().now()
    log = FlowLog(id, JobInfo(0, LOG, "delayed", record.data, 0.0, 0, id, 0, now, now, None, 0))
    log.read([job.waiter for job in jobs if job.queue == LOG and job.waiter is not None])
    return describe(log, {}, {})


def no_such_flow(id: str) -> NotFound:
    """The error about an unknown id."""
    return NotFound("flow", id, "it was never started, or it ended and was kept long enough")


def describe(log: FlowLog, jobs: dict[str, JobInfo], results: dict[str, Any]) -> FlowInfo:
    """A flow for people."""
    graph = log.graph
    nodes = {
        node.spec.name: _node(graph, node, jobs.get(node.spec.name), results.get(node.spec.name), log.summary.state)
        for node in graph.nodes
        if node.spec.kind != "gate"
    }
    summary = log.summary.public(log.id, log.created_at)
    return FlowInfo(
        id=summary.id,
        name=summary.name,
        state=graph.state(),
        created_at=summary.created_at,
        ended_at=summary.ended_at,
        deadline=summary.deadline,
        counts=graph.summary(),
        progress=graph.progress(),
        open=graph.open,
        nodes=nodes,
    )


def _node(graph: FlowGraph, node: NodeRecord, job: JobInfo | None, result: Any, flow: FlowState) -> NodeInfo:
    spec, report, state = node.spec, node.report, node.state
    if state == "started" and job is not None:
        state = _STATES.get(job.state, state)
    elif state == "waiting" and spec.kind == "on_cancel" and flow != "running":
        state = "skipped"
    owner = None if node.added_by is None else graph.nodes[node.added_by]
    return NodeInfo(
        name=spec.name,
        state=state,
        queue=spec.queue,
        type=type_of(spec.data),
        job_id=node.job_id if job is None else job.id,
        result=result,
        error=reason_of(node) if report is not None and report.kind == "dead" else None,
        after=tuple(one.spec.name for one in graph.parents(node)),
        when=spec.when if spec.kind != "on_cancel" else "on_cancel",
        added_by=None if owner is None or owner.spec.kind == "gate" else owner.spec.name,
        started_at=node.started_at,
        ended_at=node.ended_at,
    )


def _problem(info: FlowInfo) -> str:
    if info.state == "cancelled":
        return "it was cancelled"
    if info.state == "expired":
        return "its deadline came before its end"
    bad = [f"{node.name} is {node.state}{_reason(node)}" for node in info.nodes.values() if node.state in _BAD]
    more = f"; and {len(bad) - 3:,} more" if len(bad) > 3 else ""
    repair = f". accoda flows retry {info.id} revives its dead jobs" if "dead" in info.counts else ""
    return f"{'; '.join(bad[:3])}{more}{repair}"


def _reason(node: NodeInfo) -> str:
    return f" ({last_line(node.error)})" if node.error else ""


_BAD: tuple[Literal["dead", "cancelled", "removed"], ...] = ("dead", "cancelled", "removed")


async def _result(store: Store, id: str, node: NodeRecord) -> Any:
    body = None if node.report is None else await body_of(store, id, node.report)
    try:
        return None if body is None else decode(body)
    except (ValueError, RecursionError):
        return None


def _public(record: JobInfo) -> FlowSummary:
    return summary_of(record).public(record.key or "", record.created_at)


def _readable(record: JobInfo) -> FlowSummary | None:
    try:
        return _public(record)
    except ValueError:
        return None
