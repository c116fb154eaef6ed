"""What people see of a flow, and the words for it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Literal, get_args

from msgspec import Struct

from accoda.errors import InvalidInput

When = Literal["all_done", "all_ended", "any_done", "any_dead"]
"""What a node needs of the nodes that it comes after."""
NodeState = Literal[
    "waiting", "started", "ready", "delayed", "held", "running", "done", "dead", "cancelled", "removed", "skipped"
]
"""`waiting`: for the nodes before it. `started`: its job is stored; `ready`, `delayed`, `held` (its lane is full) and
`running` say more of it.
`removed`: its job was removed or purged. `skipped`: what it needs can no longer happen."""
FlowState = Literal["running", "done", "failed", "cancelled", "expired"]

WHENS: tuple[When, ...] = get_args(When)
FLOW_STATES: tuple[FlowState, ...] = get_args(FlowState)
ENDED_NODE = frozenset({"done", "dead", "cancelled", "removed", "skipped"})

LOG = "accoda.flows.log"
"""The queue of the flows' records. Of the same family as `REPORTS`: on a Redis Cluster both are in one slot."""
NAME_LENGTH = 200
KEY_LENGTH = 200
NODES = 100_000
"""The most nodes of a flow."""
EDGES = 1_000_000
"""The most pairs of nodes of which one comes after the other."""
KEEP_FOR = 86_400.0
"""Seconds for which a flow that has ended is kept, unless it says otherwise."""
_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f/]+")


class NodeInfo(Struct, frozen=True, kw_only=True):
    """One node. `job_id` is known while its job is stored, and after its end. `after` are the names of the nodes that
    it comes after, those that were added at run time included. `result` is of plain values.

    Moments are milliseconds: `started_at` is when its job was stored, or revived, `ended_at` when it ended.
    """

    name: str
    state: NodeState
    queue: str
    type: str | None = None
    job_id: int | None = None
    result: Any = None
    error: str | None = None
    after: tuple[str, ...] = ()
    when: str = "all_done"
    added_by: str | None = None
    started_at: int | None = None
    ended_at: int | None = None


class FlowSummary(Struct, frozen=True, kw_only=True):
    """A flow in a list. `counts` says how many nodes are in each state; of those that run, all are `started`.

    `progress` says how many have ended, of how many; of a batch, how many of its members. `open`: a batch that may get
    more members.
    """

    id: str
    name: str
    state: FlowState
    created_at: int
    ended_at: int | None = None
    deadline: int | None = None
    counts: dict[str, int] = {}
    progress: tuple[int, int] = (0, 0)
    open: bool = False


class FlowInfo(FlowSummary, frozen=True, kw_only=True):
    """A flow with its nodes, by name, in the order in which they were added."""

    nodes: dict[str, NodeInfo] = {}

    @property
    def last(self) -> tuple[str, ...]:
        """The names of the nodes that no other node comes after. Nodes that are skipped, and those that only a stopped
        flow runs, are left out: a failure branch that did not run is no end of a flow."""
        run = {name: node for name, node in self.nodes.items() if node.state != "skipped" and node.when != "on_cancel"}
        before = {name for node in run.values() for name in node.after}
        return tuple(name for name in run if name not in before)


def count_states(states: Counter[str]) -> dict[str, int]:
    """The counts without zeros, in the order of `NodeState`."""
    return {state: states[state] for state in get_args(NodeState) if states[state]}


def check_label(field: str, value: object, length: int = NAME_LENGTH) -> str:
    """Refuse what cannot be the name of a flow or a node, or a flow's key."""
    if type(value) is not str or not 0 < len(value) <= length or _NAME.fullmatch(value) is None or not _is_text(value):
        raise InvalidInput(
            field, f"must be 1 to {length} characters, none a control character or '/', not {value!r:.80}"
        )
    return value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
