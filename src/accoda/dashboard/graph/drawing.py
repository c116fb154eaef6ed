"""A flow's graph as what its template draws: boxes with their texts, and lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from msgspec import Struct

from accoda.dashboard.graph.folding import UNFOLDED, Box, fold
from accoda.dashboard.graph.layers import Layers, critical_path, layers_of
from accoda.dashboard.graph.placing import HEIGHT, WIDTH, place
from accoda.flows.model import ENDED_NODE, NodeInfo
from accoda.operations.words import length, stamp

NAME_SHOWN = 26
"""Characters of a name; what is too wide for its box is clipped."""
SIGNS = {
    "waiting": "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9",
    "started": "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M6 6h.01",
    "ready": "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M6 6h.01",
    "held": "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M4.75 4.5v3M7.25 4.5v3",
    "delayed": "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M6 3.5v2.5l2 1.5",
    "running": "M3 1.5l7 4.5l-7 4.5z",
    "done": "M1.5 6.5l3 3l6-7",
    "dead": "M2 2l8 8M10 2l-8 8",
    "cancelled": "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M2.8 9.2l6.4-6.4",
    "removed": "M2 6h8",
    "skipped": "M2 2l4 4l-4 4M6.5 2l4 4l-4 4",
}
"""For each state of a node a sign of 12 by 12, so that it is not told by its colour alone."""
WHEN = {
    "all_done": "all before it are done",
    "all_ended": "all before it have ended",
    "any_done": "one before it is done",
    "any_dead": "one before it is dead",
    "on_cancel": "the flow is cancelled or expires",
}


class Picture(Struct, frozen=True, kw_only=True):
    """A box as it is drawn. `tip` is all about it, in lines. `since`: it still runs, since that moment."""

    name: str
    state: str
    sign: str
    x: int
    y: int
    title: str
    word: str
    took: str = ""
    since: int | None = None
    tip: str
    nodes: tuple[str, ...]
    strong: bool = False

    @property
    def count(self) -> int:
        return len(self.nodes)


class Curve(Struct, frozen=True):
    """A line. `strong`: of the critical path. `dashed`: the node before added the one after it."""

    path: str
    strong: bool = False
    dashed: bool = False


class Drawing(Struct, frozen=True, kw_only=True):
    """The whole. Columns `first` to `end` of `columns` are in it; `hidden` lines are not drawn."""

    width: int
    height: int
    boxes: list[Picture]
    curves: list[Curve]
    path_took: float
    path_since: int | None
    first: int
    end: int
    columns: int
    hidden: int
    unfolded: bool
    box_width: int = WIDTH
    box_height: int = HEIGHT


def draw(nodes: Mapping[str, NodeInfo], now: int, *, unfold: str | None = None, start: int = 0) -> Drawing:
    """The graph of these nodes, folded as far as needed."""
    layers = layers_of(nodes)
    chain = critical_path(layers, now)
    folded, end = fold(layers, unfold, start)
    placed = place(folded)
    strong = {folded.of[name] for name in chain.names if name in folded.of}
    steps = {(folded.of.get(one), folded.of.get(next)) for one, next in pairwise(chain.names)}
    curves = [
        Curve(placed.paths[line], line in steps, _is_addition(layers, folded.boxes[line[0]], folded.boxes[line[1]]))
        for line in folded.lines
    ]
    return Drawing(
        width=placed.width,
        height=placed.height,
        boxes=[
            _picture(layers, box, corner, box.number in strong)
            for box, corner in zip(folded.boxes, placed.boxes, strict=True)
        ],
        curves=sorted(curves, key=lambda curve: curve.strong),  # what is strong lies over the others
        path_took=chain.took,
        path_since=chain.since,
        first=folded.boxes[0].column if folded.boxes else 0,
        end=end,
        columns=len(layers.columns),
        hidden=folded.hidden,
        unfolded=unfold in nodes,
    )


def _is_addition(layers: Layers, before: Box, after: Box) -> bool:
    """Whether a line only says which node added which."""
    node = layers.nodes[after.name]
    return node.added_by in before.nodes and not set(node.after) & set(before.nodes)


def _picture(layers: Layers, box: Box, corner: tuple[int, int], strong: bool) -> Picture:
    nodes = [layers.nodes[name] for name in box.nodes]
    node = nodes[0]
    several = len(nodes) > 1
    taken = [seconds for each in nodes if (seconds := took(each)) is not None]
    longest = f"up to {length(max(taken))}" if several and taken else length(taken[0]) if taken else ""
    return Picture(
        name=box.name,
        state=node.state,
        sign=SIGNS[node.state],
        x=corner[0],
        y=corner[1],
        title=f"{_common(box)} ×{len(nodes):,}" if several else _short(node.name),
        word=f"{len(nodes):,} {node.state}" if several else node.state,
        took=longest,
        since=None if several or node.state in ENDED_NODE else node.started_at,
        tip=_fold_tip(box, node) if several else "\n".join(tip_of(layers, node)),
        nodes=box.nodes,
        strong=strong,
    )


def _fold_tip(box: Box, node: NodeInfo) -> str:
    names = ", ".join(box.nodes[:5]) + (f" and {len(box.nodes) - 5:,} more" if len(box.nodes) > 5 else "")
    shown = "" if len(box.nodes) <= UNFOLDED else f" Unfolding shows {UNFOLDED} of them."
    return f"{len(box.nodes):,} nodes, all {node.state}\n{names}\nSelect to unfold.{shown}"


def tip_of(layers: Layers, node: NodeInfo) -> list[str]:
    """All about a node but its error, in lines."""
    lines = [node.name, f"{node.state}, in queue {node.queue}" + (f", of type {node.type}" if node.type else "")]
    lines.append(f"Starts when {WHEN.get(node.when, node.when)}" + waits_for(layers.nodes, node))
    if node.started_at is not None:
        lines.append(f"Started {stamp(node.started_at)}")
    if node.ended_at is not None:
        seconds = took(node)
        lines.append(f"Ended {stamp(node.ended_at)}" + ("" if seconds is None else f", after {length(seconds)}"))
    if node.added_by is not None:
        lines.append(f"Added by {node.added_by}")
    return lines


def waits_for(nodes: Mapping[str, NodeInfo], node: NodeInfo) -> str:
    """How many nodes a waiting one still waits for; empty if it does not wait."""
    if node.state != "waiting" or not node.after:
        return ""
    still = sum(name in nodes and nodes[name].state not in ENDED_NODE for name in node.after)
    return f"; {still:,} of {len(node.after):,} have not ended"


def took(node: NodeInfo) -> float | None:
    """Seconds from when its job was stored to its end."""
    if node.started_at is None or node.ended_at is None:
        return None
    return max(0, node.ended_at - node.started_at) / 1000


def _common(box: Box) -> str:
    """What the names of several nodes begin with, without the numbers."""
    first, last = min(box.nodes), max(box.nodes)  # what these two share, all share
    shared = next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return _short(first[:shared].rstrip("-_ .:#0123456789"), NAME_SHOWN - 8) or "nodes"


def _short(name: str, most: int = NAME_SHOWN) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
