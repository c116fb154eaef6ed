"""A flow's graph as a tree of lines. Pure.

    charge
    ├─ reserve-1
    ├─ reserve-2
    └─ reserve-3
       ↓ ship       also after reserve-1, reserve-2

Each node is there once, below the last of the nodes that it comes after; the others are named. A node that is the only
one below another is drawn under it with an arrow, so a long chain takes no width. Of many siblings or links of a chain
that are alike (their kind and state, and that of all that is below them) a few are drawn and the others are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from accoda.fingerprint import fingerprint

if TYPE_CHECKING:
    from accoda.operations.flows import NodeView

SHOWN = 3
"""Nodes that are drawn of those that are alike."""
FOLDED = 8
"""How many must be alike to be folded."""
WIDEST = 24
"""Columns of the lines before a name; what is deeper is not indented further."""


class Line(NamedTuple):
    """A node with the lines before its name, or, without a node, how many are left out and in what state."""

    lead: str
    node: NodeView | None = None
    others: tuple[str, ...] = ()
    """The other nodes that it comes after."""
    left_out: int = 0
    state: str = ""


class _Item(NamedTuple):
    """Something to draw: a node, or a count of those left out."""

    place: int
    left_out: int = 0


class _Tree:
    def __init__(self, nodes: Sequence[NodeView], fold: bool) -> None:
        self.nodes = nodes
        self.fold = fold
        places = {node.name: place for place, node in enumerate(nodes)}
        self.parents = [_parent(node, places) for node in nodes]
        self.below: list[list[int]] = [[] for _ in nodes]
        self.roots: list[int] = []
        for place, parent in enumerate(self.parents):
            (self.roots if parent is None else self.below[parent]).append(place)
        self.shapes = self._shapes()

    def _shapes(self) -> list[int]:
        """A number for each node: the same for those whose kind, state and whole subtree are the same."""
        numbers: dict[tuple[object, ...], int] = {}
        shapes = [0] * len(self.nodes)
        for place in reversed(self._down()):
            node = self.nodes[place]
            inner = tuple(shapes[one] for one in self.below[place])
            shapes[place] = numbers.setdefault((_kind(node), inner), len(numbers))
        return shapes

    def _down(self) -> list[int]:
        """Every node after the one that it is below."""
        order = list(self.roots)
        for place in order:  # grows while it is gone through
            order.extend(self.below[place])
        return order

    def items(self, siblings: Sequence[int]) -> list[_Item]:
        """Siblings, with those that are alike folded."""
        alike = Counter(self.shapes[place] for place in siblings)
        found: list[_Item] = []
        drawn: Counter[int] = Counter()
        for place in siblings:
            shape = self.shapes[place]
            drawn[shape] += 1
            if not self.fold or alike[shape] < FOLDED or drawn[shape] <= SHOWN:
                found.append(_Item(place))
            elif drawn[shape] == SHOWN + 1:
                found.append(_Item(place, alike[shape] - SHOWN))
        return found

    def chain(self, place: int) -> tuple[int, int]:
        """How many links of a chain are like this node, from it on, and the last of them."""
        count, node = 1, self.nodes[place]
        while len(self.below[place]) == 1:
            following = self.nodes[self.below[place][0]]
            if len(following.after) > 1 or _kind(following) != _kind(node):
                break
            place = self.below[place][0]
            count += 1
        return count, place


def draw_tree(nodes: Sequence[NodeView], *, fold: bool = True) -> list[Line]:
    """The lines of a flow's graph. `fold`: count nodes that are alike instead of drawing all of them."""
    tree = _Tree(nodes, fold)
    lines: list[Line] = []
    stack: list[tuple[_Item, str, str]] = [(item, "", "") for item in reversed(tree.items(tree.roots))]
    while stack:
        item, lead, inner = stack.pop()
        node = nodes[item.place]
        if item.left_out:
            lines.append(Line(lead, left_out=item.left_out, state=node.state))
            continue
        drawn = tree.parents[item.place]
        below_of = None if drawn is None else nodes[drawn].name
        lines.append(Line(lead, node, tuple(name for name in node.after if name != below_of)))
        below, inner = tree.below[item.place], inner[:WIDEST]
        if len(below) == 1:
            stack.append((_link(tree, below[0], lines, f"{inner}↓ "), f"{inner}↓ ", inner))
            continue
        items = tree.items(below)
        for number, one in reversed(list(enumerate(items, 1))):
            last = number == len(items)
            stack.append((one, inner + ("└─ " if last else "├─ "), inner + ("   " if last else "│  ")))
    return lines


def _link(tree: _Tree, place: int, lines: list[Line], lead: str) -> _Item:
    """The next link of a chain to draw: of many that are alike the last one, with the others counted before it."""
    count, last = tree.chain(place)
    if not tree.fold or count < FOLDED:
        return _Item(place)
    lines.append(Line(lead, left_out=count - 1, state=tree.nodes[place].state))
    return _Item(last)


def _parent(node: NodeView, places: dict[str, int]) -> int | None:
    """The place of the node below which one is drawn: the last that it comes after, or the one that added it."""
    before = [places[name] for name in node.after if name in places]
    if before:
        return max(before)
    return None if node.added_by is None else places.get(node.added_by)


def _kind(node: NodeView) -> tuple[object, ...]:
    """What nodes that are alike have in common; of dead ones, the cause."""
    return node.queue, node.type, node.when, node.state, node.error and fingerprint(node.error)
