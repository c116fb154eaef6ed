"""Where boxes and lines are. Pure.

A line over several columns has a lane of its own in each column between, so that no box lies over it. All lines of a
box share its lanes. Boxes are ordered by the middle of what they come after, and then of what comes after them, which
keeps lines short and crossings few.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from msgspec import Struct

from accoda.dashboard.graph.folding import Folded, Line

WIDTH, HEIGHT = 192, 46
"""Of a box."""
GAP, WIDEST_GAP = 64, 224
"""Between two columns; the more there is in a column, the wider it is, or lines would run into each other."""
ROW, LANE = 14, 14
"""Between two boxes of a column; the height of a lane."""
EDGE = 16
"""Around the drawing."""
MOST_LANES = 3000
"""If there were more, lines go straight, under boxes."""
SWEEPS = 2


class Slot(Struct, eq=False):
    """A place in a column: of a box, or of a lane. `y` is its middle."""

    height: float
    before: list[Slot] = []
    after: list[Slot] = []
    y: float = 0.0


class Placed(Struct, frozen=True):
    """The size of the drawing, the upper left corner of each box, and each line as an SVG path."""

    width: int
    height: int
    boxes: list[tuple[int, int]]
    paths: dict[Line, str]


def place(folded: Folded) -> Placed:
    """Where everything is."""
    if not folded.boxes:
        return Placed(0, 0, [], {})
    first = folded.boxes[0].column
    columns: list[list[Slot]] = [[] for _ in range(folded.boxes[-1].column - first + 1)]
    slots = [Slot(HEIGHT + ROW, [], []) for _ in folded.boxes]
    for box, slot in zip(folded.boxes, slots, strict=True):
        columns[box.column - first].append(slot)
    ways = _ways(folded, slots, columns, first)
    _order(columns)
    step = WIDTH + min(WIDEST_GAP, GAP + 3 * max(0, max(map(len, columns)) - 10))
    at = [EDGE + (box.column - first) * step for box in folded.boxes]
    corners = [(x, round(slot.y - HEIGHT / 2)) for x, slot in zip(at, slots, strict=True)]
    height = max(sum(slot.height for slot in column) for column in columns)
    paths = {line: _path(way, at[line[0]], at[line[1]], step) for line, way in ways.items()}
    return Placed(max(at) + WIDTH + EDGE, round(height) + 2 * EDGE, corners, paths)


def _ways(folded: Folded, slots: list[Slot], columns: list[list[Slot]], first: int) -> dict[Line, list[Slot]]:
    """The slots that each line goes through, from its first box to its last; lanes are made where they are needed."""
    long = sum(_length(folded, line) - 1 for line in folded.lines)
    lanes: dict[tuple[int, int], Slot] = {}
    ways = {}
    for line in folded.lines:
        start, end = line
        way = [slots[start]]
        column = folded.boxes[start].column - first
        for between in range(column + 1, column + _length(folded, line) if long <= MOST_LANES else 0):
            lane = lanes.get((start, between))
            if lane is None:
                lane = lanes[start, between] = Slot(LANE, [], [])
                columns[between].append(lane)
            way.append(lane)
        way.append(slots[end])
        for one, next in pairwise(way):
            if next not in one.after:
                one.after.append(next)
                next.before.append(one)
        ways[line] = way
    return ways


def _length(folded: Folded, line: Line) -> int:
    return folded.boxes[line[1]].column - folded.boxes[line[0]].column


def _order(columns: Sequence[list[Slot]]) -> None:
    """Give each slot its place, to and fro over the columns."""
    height = max(sum(slot.height for slot in column) for column in columns)
    for column in columns:
        _stack(column, height)
    for _ in range(SWEEPS):
        for column in columns:
            column.sort(key=lambda slot: _middle(slot, slot.before))
            _stack(column, height)
        for column in reversed(columns):
            column.sort(key=lambda slot: _middle(slot, slot.after))
            _stack(column, height)


def _middle(slot: Slot, near: list[Slot]) -> float:
    return fmean(one.y for one in near) if near else slot.y


def _stack(column: list[Slot], height: float) -> None:
    y = EDGE + (height - sum(slot.height for slot in column)) / 2
    for slot in column:
        slot.y = y + slot.height / 2
        y += slot.height


def _path(way: list[Slot], start: int, end: int, step: int) -> str:
    """From the right side of the first box to the left side of the last; a lane is a straight part."""
    x, y = start + WIDTH, round(way[0].y)
    text = f"M{x} {y}"
    columns = range(start + step, end, step) if len(way) > 2 else ()
    for slot, to_x in zip(way[1:], (*columns, end), strict=True):
        middle, to_y = (x + to_x) // 2, round(slot.y)
        text += f"C{middle} {y} {middle} {to_y} {to_x} {to_y}"
        x, y = to_x, to_y
        if to_x != end:
            text += f"h{WIDTH}"
            x += WIDTH
    return text
