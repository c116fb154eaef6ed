"""What a flow must be, worked out anew each time from all that happened to its jobs. It shares no code with Accoda.

The model knows the nodes, which of them were started, and how their jobs ended. From that it computes every other state
by looking at all nodes, without counts that could drift. It is slow, and meant to be obviously right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

End = Literal["done", "dead", "cancelled", "removed"]
LIVE = "live"
BAD = ("dead", "cancelled", "removed")


@dataclass
class ModelNode:
    """A node. `after` are the names that were given; `owner` is the node that added it at run time, or the gate."""

    name: str
    after: tuple[str, ...] = ()
    when: str = "all_done"
    kind: str = "job"
    owner: str | None = None
    detached: bool = False
    started: bool = False
    end: End | None = None
    at_stop: str | None = None
    """What it was when the flow was stopped, and is from then on, if it was not started: cancelled or skipped."""


@dataclass
class FlowModel:
    """The nodes by name, in the order in which they were added."""

    nodes: dict[str, ModelNode] = field(default_factory=dict)
    stop: Literal["cancelled", "expired"] | None = None
    closed: bool = False
    """The batch gets no more members."""
    own: dict[str, list[str]] = field(default_factory=dict)
    """By node: what it added at run time, and those after it wait for."""

    def add(self, node: ModelNode) -> None:
        """One more node. A name that is taken stands for its node."""
        if node.name not in self.nodes:
            node.at_stop = "cancelled" if self.stop is not None else None
            self.nodes[node.name] = node
            if node.owner is not None and not node.detached:
                self.own.setdefault(node.owner, []).append(node.name)

    def end(self, name: str, how: End) -> None:
        """The job of a node has ended; or a dead one was removed."""
        self.nodes[name].end = how

    def revive(self, name: str) -> None:
        """The dead job of a node is to run again."""
        self.nodes[name].end = None

    def close(self) -> None:
        """The batch gets no more members, unless the flow was stopped before."""
        self.closed = self.closed or self.stop is None

    def stop_flow(self, how: Literal["cancelled", "expired"]) -> None:
        """It is cancelled, or its deadline has come, unless it has ended."""
        if self.stop is None and self.state() == "running":
            for name, state in self.states().items():
                if state in ("waiting", "skipped") and self.nodes[name].kind != "on_cancel":
                    self.nodes[name].at_stop = "skipped" if state == "skipped" else "cancelled"
            self.stop = how

    def take_back(self) -> None:
        """In a stopped flow nothing runs but what is for that."""
        if self.stop is not None:
            for node in self.nodes.values():
                if node.started and node.end is None and node.kind != "on_cancel":
                    node.end = "cancelled"

    def start_all(self) -> list[str]:
        """Start what may start; the names."""
        names = [name for name in self.nodes if self.may_start(name)]
        for name in names:
            self.nodes[name].started = True
        return names

    # -- questions

    def before(self, name: str) -> list[str]:
        """The nodes before one: those given, and what they added at run time, and what that added."""
        found: dict[str, None] = {}
        waiting = [one for one in self.nodes[name].after if one in self.nodes]
        while waiting:
            one = waiting.pop(0)
            if one not in found:
                found[one] = None
                waiting += self.own.get(one, [])
        return list(found)

    def parents(self, name: str) -> list[str]:
        """The nodes before one, without gates."""
        return [one for one in self.before(name) if self.nodes[one].kind != "gate"]

    def states(self) -> dict[str, str]:
        """Every node: "waiting", "live", "skipped", or how it ended."""
        known: dict[str, str] = {}
        for name in self.nodes:
            self._state(name, known)
        return known

    def may_start(self, name: str) -> bool:
        """Whether a node that was not started may be."""
        node = self.nodes[name]
        if node.started or node.kind == "gate":
            return False
        if node.kind == "on_cancel":
            running = any(one.started and one.end is None and one.kind == "job" for one in self.nodes.values())
            return self.stop is not None and not running
        return self.stop is None and self._verdict(name, {}) == "start"

    def state(self) -> str:
        """What the flow is: "running", or how it ended."""
        states = self.states()
        if LIVE in states.values() or self.is_open() or any(map(self.may_start, self.nodes)):
            return "running"
        if self.stop is not None:
            return self.stop
        followers: dict[str, list[str]] = {name: [] for name in self.nodes}
        for name in self.nodes:
            for one in self.before(name):
                followers[one].append(name)
        for name, state in states.items():
            needed = [one for one in followers[name] if self.nodes[one].when in ("all_done", "any_done")]
            if state in BAD and (not followers[name] or any(states[one] == "skipped" for one in needed)):
                return "failed"
        return "done"

    def is_open(self) -> bool:
        """Whether it is a batch that may get more members."""
        return self.stop is None and not self.closed and any(node.kind == "gate" for node in self.nodes.values())

    def _state(self, name: str, known: dict[str, str]) -> str:
        if name not in known:
            known[name] = self._of(self.nodes[name], known)
        return known[name]

    def _of(self, node: ModelNode, known: dict[str, str]) -> str:
        if node.end is not None:
            return node.end
        if node.started:
            return LIVE
        if node.kind == "gate" and self.closed:
            return "done"
        if node.at_stop is not None:
            return node.at_stop
        if node.kind != "job":
            return "waiting"
        return "skipped" if self._verdict(node.name, known) == "skip" else "waiting"

    def _verdict(self, name: str, known: dict[str, str]) -> Literal["start", "wait", "skip"]:
        before = [self._state(one, known) for one in self.before(name)]
        everything_ended = all(state not in ("waiting", LIVE) for state in before)
        match self.nodes[name].when:
            case "all_done":
                if any(state not in ("done", "waiting", LIVE) for state in before):
                    return "skip"
                return "start" if everything_ended else "wait"
            case "all_ended":
                return "start" if everything_ended else "wait"
            case when:
                wanted = "done" if when == "any_done" else "dead"
                return "start" if wanted in before else "skip" if everything_ended else "wait"
