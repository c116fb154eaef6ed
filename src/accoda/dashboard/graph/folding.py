"""Many nodes as few boxes: nodes of a column that are alike become one, as far as the drawing needs it. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from msgspec import Struct

from accoda.dashboard.graph.layers import Layers

MOST_BOXES = 400
"""Boxes of one drawing; the columns that follow are another."""
MOST_LINES = 1500
TALL = 60
"""Nodes of a column up to which it stays as it is, if the drawing is not too large."""
FEW = 3
"""Nodes that are alike and not folded: a few dead ones are what one looks for."""
UNFOLDED = 60
"""Nodes that are shown of a box that is unfolded."""

How = Literal["alike", "state"]
"""Nodes become one box if they have the same state and the same nodes before and after them; or only the same state."""
Line = tuple[int, int]
"""From a box to a box, by their numbers."""


class Box(Struct, frozen=True):
    """One node, or several. It is named after its first node."""

    number: int
    column: int
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.nodes[0]


class Folded(Struct, frozen=True):
    """The boxes of some columns, and the lines between them. `hidden` lines are too many to draw."""

    boxes: list[Box]
    lines: list[Line]
    hidden: int = 0
    of: dict[str, int] = {}
    """The box of each node."""


WAYS: tuple[tuple[How, int], ...] = (("alike", TALL), ("alike", FEW), ("state", TALL), ("state", FEW))
"""How to fold, and columns of more than how many nodes: from as little as possible to as much."""


def fold(layers: Layers, unfold: str | None = None, start: int = 0) -> tuple[Folded, int]:
    """The first way of folding with which the drawing is small enough; and the first column that is not in it.

    `unfold`: the name of a box that is shown as single nodes. `start`: the first column to draw.
    """
    for how, above in WAYS:
        columns = [_folded(layers, names, how, above, unfold) for names in layers.columns]
        if sum(map(len, columns)) <= MOST_BOXES + (UNFOLDED if unfold else 0):
            made = _boxes(layers, columns, 0, len(columns))
            if not made.hidden:
                return made, len(columns)
    end, count = start, 0
    while end < len(columns) and (end == start or count + len(columns[end]) <= MOST_BOXES):
        count += len(columns[end])
        end += 1
    return _boxes(layers, columns, start, end), end


def _folded(
    layers: Layers, names: Sequence[str], how: How, above: int, unfold: str | None
) -> Sequence[tuple[str, ...]]:
    """The nodes of a column as boxes."""
    if len(names) <= above:
        return [(name,) for name in names]
    groups: dict[Hashable, list[str]] = {}
    for name in names:
        groups.setdefault(_kind(layers, name, how), []).append(name)
    found: list[tuple[str, ...]] = []
    for group in groups.values():
        single = len(group) if len(group) <= FEW else UNFOLDED if group[0] == unfold else 0
        found += [(name,) for name in group[:single]]
        if single < len(group):
            found.append(tuple(group[single:]))
    return found


def _kind(layers: Layers, name: str, how: How) -> Hashable:
    node = layers.nodes[name]
    if how == "state":
        return node.state, node.when == "on_cancel"
    return node.state, node.when, node.queue, node.added_by, node.after, tuple(layers.after[name])


def _boxes(layers: Layers, columns: Sequence[Sequence[tuple[str, ...]]], start: int, end: int) -> Folded:
    boxes: list[Box] = []
    for column in range(start, end):
        boxes += [Box(len(boxes) + n, column, nodes) for n, nodes in enumerate(columns[column])]
    of = {name: box.number for box in boxes for name in box.nodes}
    lines: dict[Line, None] = {}
    for box in boxes:
        for name in box.nodes:
            lines.update(dict.fromkeys((of[one], box.number) for one in layers.before[name] if one in of))
    drawn = list(lines)[:MOST_LINES]
    return Folded(boxes, drawn, len(lines) - len(drawn), of)
