"""The flows that are in a store at the end: their logs as they are, and what a model makes of them."""

from __future__ import annotations

from zlib import crc32

import msgspec
from msgspec import Struct, field

from accoda.flows.graph import NodeSpec
from accoda.flows.log import (
    NIL,
    Add,
    Close,
    FlowLog,
    Note,
    Round,
    Start,
    Stop,
    is_report,
    node_of,
    summary_of,
    unframed,
)
from accoda.flows.model import LOG
from accoda.model import REPORTS, ByKey, Report
from accoda.storage.protocol import Store
from proof.flows.model import LIVE, FlowModel, ModelNode

_read_note = msgspec.msgpack.Decoder(Note).decode
_read_round = msgspec.msgpack.Decoder(Round).decode


class FinalFlow(Struct):
    """A flow: what its record says, how Accoda reads its log, the log's rounds, and what nobody has read yet."""

    id: str
    state: str
    states: dict[str, str]
    rounds: list[Round]
    unread: list[bytes]
    has_inbox: bool


async def final_flow(store: Store, id: str) -> FinalFlow | None:
    """A flow of the store; None: the record is not that of a flow."""
    record = await store.look(ByKey(LOG, id), waiters_after=0)
    inbox = await store.look(ByKey(REPORTS, id), waiters_after=0)
    if record.job is None:
        return None
    try:
        mark, log = summary_of(record.job).mark.encode(), FlowLog(id, record.job)
        rounds = [_read_round(data) for _, data in unframed(record.waiters)]
    except ValueError:
        return None
    log.read(record.waiters)
    unread = [] if inbox.job is None else log.new_events(inbox.job.id, 0, inbox.waiters)
    return FinalFlow(
        id,
        log.summary.state,
        {node.spec.name: LIVE if node.state == "started" else node.state for node in log.graph.nodes},
        [round for round in rounds if round.at or round.mark == mark],
        unread,
        inbox.job is not None,
    )


class Replay(Struct):
    """A flow's log, read by the model: what it says, and what it must not say."""

    flow: FinalFlow
    model: FlowModel = field(default_factory=FlowModel)
    ids: dict[str, int] = field(default_factory=dict)
    """The jobs of its nodes, as their reports name them."""
    reports: list[Report] = field(default_factory=list)
    handed: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """By node: the results of the nodes before it when it was started, as checksums; None: too large for a report."""
    results: dict[str, int | None] = field(default_factory=dict)
    joins: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def at_rest(self) -> bool:
        """Whether all that was reported is in the log."""
        return not self.flow.has_inbox


def replay(flow: FinalFlow) -> Replay:
    """Read a flow's log from its beginning."""
    found = Replay(flow)
    for round in flow.rounds:
        for event in round.events:
            _apply(found, event)
        names = list(found.model.nodes)
        for number in round.started:
            _start(found, names[number])
    if found.at_rest:
        late = [name for name in found.model.nodes if found.model.may_start(name)]
        if late:
            found.wrong.append(f"{', '.join(late)} may start, but the log ends without it")
    for event in flow.unread:
        if is_report(event):
            found.reports.append(Report.read(event))
    return found


def _start(found: Replay, name: str) -> None:
    model = found.model
    if model.nodes[name].started:
        found.wrong.append(f"{name} was started twice")
        return
    if not model.may_start(name):
        before = {one: model.states()[one] for one in model.before(name)}
        found.wrong.append(f"{name} ({model.nodes[name].when}) was started, but the nodes before it are {before}")
    model.nodes[name].started = True
    found.joins += len(model.before(name)) > 0
    found.handed[name] = {one: found.results[one] for one in model.parents(name) if model.nodes[one].end == "done"}


def _apply(found: Replay, event: bytes) -> None:
    model = found.model
    if is_report(event):
        _report(found, Report.read(event))
        return
    match _read_note(event):
        case Add(nodes, added_by):
            for spec in nodes:
                model.add(_node(spec, list(model.nodes), added_by))
        case Close():
            model.close()
        case Stop(expired):
            model.stop_flow("expired" if expired else "cancelled")
        case Start():
            pass


def _node(spec: NodeSpec, names: list[str], added_by: str | None) -> ModelNode:
    after = tuple(names[one] if isinstance(one, int) else one for one in spec.after)
    return ModelNode(spec.name, after, spec.when, spec.kind, added_by, spec.detached)


def _report(found: Replay, report: Report) -> None:
    found.reports.append(report)
    model, name = found.model, node_of(found.flow.id, report.key)
    node = model.nodes.get(name)
    if node is None or not node.started:
        found.wrong.append(f"job {report.id} reports as {name}, which was not started")
        return
    if node.end is None:
        found.ids[name] = report.id
        if report.kind == "revived":
            return
        model.end(name, report.kind)
        if report.kind == "done":
            body = report.body if report.size >= 0 else NIL
            found.results[name] = crc32(body) if report.size <= len(body) else None
    elif node.end == "dead" and report.id == found.ids.get(name):
        if report.kind == "revived":
            model.revive(name)
        elif report.kind == "removed":
            model.end(name, "removed")
