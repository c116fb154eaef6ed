"""A flow as a pure value: nodes, what happened to them, and what follows from it. No I/O.

    apply(event) ──► outcomes of nodes ──► which nodes may start, which are skipped ──► is the flow over?

Everything here is computed from the events alone, in their order, so any process that reads the same events comes to
the same state. Whether a node was started is not computed: the coordinator says so, in the same atomic step in which
the node's job is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, cast

from msgspec import Struct

from accoda.flows.model import ENDED_NODE, FlowState, NodeState, When, count_states
from accoda.model import Report

NodeKind = Literal["job", "gate", "on_cancel"]
"""`gate`: no job, it ends when a batch is closed. `on_cancel`: runs when the flow is cancelled or has expired."""


class NodeSpec(Struct, frozen=True, array_like=True):
    """A node as it is stored: its job, and what it comes after (numbers; names where a running node adds it).

    `data` is the job's, with the envelope but without the flow. `takes_results`: its payload is what the nodes before
    it returned. `detached`: nodes after the one that added it do not wait for it.
    """

    name: str
    queue: str = ""
    data: bytes = b""
    after: tuple[int | str, ...] = ()
    when: When = "all_done"
    rank: float = 0.0
    delay: float | None = None
    start_at: int | None = None
    cost: int = 0
    keep_for: float = 0.0
    takes_results: bool = False
    detached: bool = False
    kind: NodeKind = "job"
    lane: str | None = None


class NodeRecord:
    """A node while the flow is worked on. The counts are of the nodes before it."""

    __slots__ = (
        "added_by",
        "before",
        "dead",
        "done",
        "ended",
        "ended_at",
        "job_id",
        "number",
        "own",
        "report",
        "spec",
        "started_at",
        "state",
    )

    def __init__(self, number: int, spec: NodeSpec, added_by: int | None) -> None:
        self.number = number
        self.spec = spec
        self.added_by = added_by
        self.own: list[int] = []
        """Nodes that it added at run time, and that those after it wait for."""
        self.before: dict[int, None] = {}
        self.state: NodeState = "waiting"
        self.report: Report | None = None
        self.job_id: int | None = None
        self.started_at: int | None = None
        self.ended_at: int | None = None
        self.ended = self.done = self.dead = 0

    def verdict(self) -> Literal["start", "wait", "skip"]:
        """Whether it may start, by what happened to the nodes before it."""
        total, when = len(self.before), self.spec.when
        everything_ended = self.ended == total
        if when == "all_done":
            return "start" if self.done == total else "wait" if self.ended == self.done else "skip"
        if when == "all_ended":
            return "start" if everything_ended else "wait"
        happened = self.done if when == "any_done" else self.dead
        return "start" if happened or not total else "skip" if everything_ended else "wait"


class FlowGraph:
    """The nodes of a flow and their states."""

    def __init__(self) -> None:
        self.nodes: list[NodeRecord] = []
        self.by_name: dict[str, NodeRecord] = {}
        self.counts: Counter[str] = Counter()
        self.startable: dict[int, None] = {}
        """Nodes that may start and were not started yet, in order."""
        self.stopped: Literal["cancelled", "expired"] | None = None
        """It was cancelled, or its deadline has come: nothing new starts but what is for that."""
        self._after: list[list[int]] = []
        self._special: list[NodeRecord] = []
        """Those that are no plain jobs. The first node of a batch is its gate."""
        self._members: set[int] = set()
        """The members of a batch, those that members added included."""
        self._members_ended = 0
        self._early: dict[str, list[tuple[Report, int]]] = {}
        """Reports of nodes that are not known yet. On a Redis Cluster a report may overtake the note that adds it."""

    # -- events

    def add(self, specs: Sequence[NodeSpec], added_by: str | None, at: int) -> None:
        """Add nodes: at the start, or by a node that runs, or by a batch. A name that is taken stands for its node."""
        owner = None if added_by is None else self.by_name.get(added_by)
        new = [node for spec in specs if (node := self._insert(spec, owner)) is not None]
        for node in new:
            if self.stopped is not None:  # it came too late: its node ended while the flow was stopped
                node.ended_at = at
                self._move(node, "cancelled")
                continue
            self._judge(node)
            for report, moment in self._early.pop(node.spec.name, ()):
                self.report(report, node.spec.name, moment)

    def _insert(self, spec: NodeSpec, owner: NodeRecord | None) -> NodeRecord | None:
        if spec.name in self.by_name:
            return None
        node = NodeRecord(len(self.nodes), spec, None if owner is None else owner.number)
        self.nodes.append(node)
        self._after.append([])
        self.by_name[spec.name] = node
        self.counts["waiting"] += 1
        if spec.kind != "job":
            self._special.append(node)
        if owner is not None and (owner.spec.kind == "gate" or owner.number in self._members):
            self._members.add(node.number)
        for one in spec.after:
            before = self.nodes[one] if isinstance(one, int) else self.by_name.get(one)
            if before is not None:
                self._link(before, node)
                for more in self._members_of(before):
                    self._link(more, node)
        if owner is not None and not spec.detached:
            owner.own.append(node.number)
            for number in list(self._after[owner.number]):
                self._link(node, self.nodes[number])
                self._judge(self.nodes[number])
        return node

    def report(self, report: Report, name: str, at: int) -> None:
        """The job of a node has ended, or a dead one was revived."""
        node = self.by_name.get(name)
        if node is None:
            self._early.setdefault(name, []).append((report, at))
            return
        if node.job_id is not None and node.state != "started" and report.id != node.job_id:
            return  # of another job under the same key, which is none of this flow's
        node.job_id = report.id
        if report.kind == "revived":
            if node.state == "dead":
                node.report = node.ended_at = None
                node.started_at = report.at
                self._move(node, "started")
        elif report.kind == "removed" and node.state == "dead":
            node.report = report
            self._move(node, "removed")
        elif node.state == "started":
            node.report, node.ended_at = report, report.at
            self._move(node, cast(NodeState, report.kind))

    def close(self, at: int) -> None:
        """A batch takes no more members."""
        if self.open:
            self.nodes[0].ended_at = at
            self._move(self.nodes[0], "done")

    def stop(self, how: Literal["cancelled", "expired"], at: int) -> None:
        """Nothing new starts. What runs is told so by the coordinator, and reports its end."""
        if self.stopped is None and self.state() == "running":
            self.stopped = how
            for node in self.nodes:
                if node.state == "waiting" and node.spec.kind != "on_cancel":
                    self.startable.pop(node.number, None)
                    node.ended_at = at
                    self._move(node, "cancelled")
            self._judge_on_cancel()

    def start(self, numbers: Iterable[int], at: int) -> None:
        """The jobs of these nodes are stored."""
        for number in numbers:
            node = self.nodes[number]
            self.startable.pop(number, None)
            node.started_at = at
            self._move(node, "started")

    # -- questions

    def state(self) -> FlowState:
        """What the flow is, by its nodes. A failed flow is running again when a dead node of it is revived."""
        if self.counts["started"] or self.startable or self.open:
            return "running"
        if self.stopped is not None:
            return self.stopped
        return "failed" if any(self._is_unmet(node) for node in self.nodes) else "done"

    @property
    def open(self) -> bool:
        """Whether it is a batch that may get more members."""
        return self.stopped is None and self._is_batch() and self.nodes[0].state not in ENDED_NODE

    def live(self) -> list[NodeRecord]:
        """The nodes whose jobs are stored and have not ended."""
        return [node for node in self.nodes if node.state == "started"]

    def stopping(self) -> list[NodeRecord]:
        """The nodes that are to be stopped."""
        if self.stopped is None or not self.counts["started"]:
            return []
        return [node for node in self.live() if node.spec.kind != "on_cancel"]

    def dead(self) -> list[NodeRecord]:
        return [node for node in self.nodes if node.state == "dead"]

    def parents(self, node: NodeRecord) -> list[NodeRecord]:
        """The nodes before one, without gates."""
        return [before for number in node.before if (before := self.nodes[number]).spec.kind != "gate"]

    def progress(self) -> tuple[int, int]:
        """How many nodes have ended, of how many; of a batch, how many of its members."""
        if self._is_batch():
            return self._members_ended, len(self._members)
        counts = self.summary()
        return sum(count for state, count in counts.items() if state in ENDED_NODE), sum(counts.values())

    def summary(self) -> dict[str, int]:
        """How many nodes are in each state, without gates, and without what is only for a cancelled flow."""
        counts = Counter(self.counts)
        for node in self._special:
            if node.spec.kind == "gate" or node.state in ("waiting", "skipped"):
                counts[node.state] -= 1
        return count_states(counts)

    def _is_batch(self) -> bool:
        return bool(self.nodes) and self.nodes[0].spec.kind == "gate"

    # -- steps

    def _link(self, before: NodeRecord, node: NodeRecord) -> None:
        if before.number in node.before:
            return
        node.before[before.number] = None
        self._after[before.number].append(node.number)
        _count(node, before.state, 1)

    def _members_of(self, node: NodeRecord) -> Iterable[NodeRecord]:
        for number in node.own:
            yield self.nodes[number]
            yield from self._members_of(self.nodes[number])

    def _move(self, node: NodeRecord, state: NodeState) -> None:
        """A node is in another state: so those after it may start, or never will, or may again."""
        waiting = [(node, state)]
        while waiting:
            each, new = waiting.pop()
            old = each.state
            self.counts[old] -= 1
            self.counts[new] += 1
            each.state = new
            if old not in ENDED_NODE and new not in ENDED_NODE:
                continue  # what comes after it learns nothing new
            if each.number in self._members:
                self._members_ended += (new in ENDED_NODE) - (old in ENDED_NODE)
            for number in self._after[each.number]:
                after = self.nodes[number]
                _count(after, old, -1)
                _count(after, new, 1)
                changed = self._verdict_of(after)
                if changed is not None:
                    waiting.append((after, changed))
        if self.stopped is not None:
            self._judge_on_cancel()

    def _judge(self, node: NodeRecord) -> None:
        changed = self._verdict_of(node)
        if changed is not None:
            self._move(node, changed)

    def _verdict_of(self, node: NodeRecord) -> NodeState | None:
        """Note whether a node may start; the state that it has to be in instead of its present one, if another."""
        if node.state not in ("waiting", "skipped") or node.spec.kind == "on_cancel" or self.stopped is not None:
            return None
        verdict = "wait" if node.spec.kind == "gate" else node.verdict()
        if verdict == "start":
            self.startable[node.number] = None
        else:
            self.startable.pop(node.number, None)
        wanted: NodeState = "skipped" if verdict == "skip" else "waiting"
        return None if wanted == node.state else wanted

    def _judge_on_cancel(self) -> None:
        """What is for a stopped flow starts when nothing else runs."""
        if not self.counts["started"]:
            for node in self._special:
                if node.spec.kind == "on_cancel" and node.state == "waiting":
                    self.startable[node.number] = None

    def _is_unmet(self, node: NodeRecord) -> bool:
        """Whether a node ended badly and that was not provided for: it is a last one, or others needed it done."""
        if node.state not in ("dead", "cancelled", "removed"):
            return False
        after = [self.nodes[number] for number in self._after[node.number]]
        return not after or any(one.state == "skipped" and one.spec.when in ("all_done", "any_done") for one in after)


def _count(node: NodeRecord, state: NodeState, by: int) -> None:
    """A node before this one comes to a state (1) or leaves it (-1)."""
    if state in ENDED_NODE:
        node.ended += by
        if state == "done":
            node.done += by
        elif state == "dead":
            node.dead += by
