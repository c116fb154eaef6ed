"""A ring of slots as bytes: always the same number of them. Pure.

    head: magic · how many slots · which round wrote it last          (see `Fence`)
    slot: its number (0: none) · its values

The slot of a moment has a number, moment // step, and its place is that number modulo the size. So nothing ever has to
be moved, and each place says which moment it holds: a slot that is older than the ring, or of a future from which the
clock has gone back, is never taken for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from struct import Struct as Packer
from typing import Literal

from msgspec import Struct

Span = Literal["1h", "24h", "7d"]
Rule = Literal["sum", "last", "mean"]
Fence = tuple[int, int]
"""The id and attempts of the round's job: both only grow, so the later of two rounds has the greater fence."""
Values = tuple[float, ...]

_HEAD = Packer("<4sHQQ")
_MAGIC = b"acr1"
_MOST = (1 << 32) - 1


class Shape(Struct, frozen=True):
    """How a span is divided: so many slots of so many milliseconds."""

    step: int
    size: int


SHAPES: dict[Span, Shape] = {
    "1h": Shape(15_000, 240),
    "24h": Shape(300_000, 288),
    "7d": Shape(1_800_000, 336),
}
"""Every step is a multiple of the first one, and slots are counted from the epoch: a coarse slot is made of whole fine
ones."""
FINE: Span = "1h"
STEP = SHAPES[FINE].step


class Layout(Struct, frozen=True, eq=False):
    """The values of a slot: their names, how each is stored (`I` or `f`), and how those of many slots are merged.

    A mean is weighted by the value at `weight`.
    """

    names: tuple[str, ...]
    formats: str
    rules: tuple[Rule, ...]
    weight: int = 0

    def packer(self) -> Packer:
        return _packers[self.formats]


_EVENTS, _HELD = ("done", "retried", "buried", "expired"), ("ready", "delayed", "taken", "dead", "oldest_age")
QUEUE = Layout(
    (*_EVENTS, *_HELD, "waited", "ran", "runs"),
    "IIIIIIIIfffI",
    ("sum",) * 4 + ("last",) * 5 + ("mean",) * 2 + ("sum",),
    weight=11,
)
"""Events in the slot; what the queue held at its end (`oldest_age` in seconds); and means in seconds over the `runs`
that workers measured in it."""
BUDGET = Layout(("left", "reserved", "used", "refused"), "fffI", ("last", "last", "sum", "sum"))
"""What a budget had at the end of the slot, and what was used and refused in it."""

_packers = {layout.formats: Packer("<I" + layout.formats) for layout in (QUEUE, BUDGET)}


class Ring:
    """Slots of one span."""

    __slots__ = ("_data", "_layout", "_packer", "_size")

    def __init__(self, layout: Layout, size: int, value: bytes | None = None) -> None:
        """The ring in a document; an empty one if there is none, or it is damaged or of another size."""
        self._layout = layout
        self._packer = layout.packer()
        self._size = size
        whole = bytes_of(layout, size)
        if value is not None and len(value) == whole and _HEAD.unpack_from(value)[:2] == (_MAGIC, size):
            self._data = bytearray(value)
        else:
            self._data = bytearray(whole)
            _HEAD.pack_into(self._data, 0, _MAGIC, size, 0, 0)

    @property
    def fence(self) -> Fence:
        _, _, id, attempts = _HEAD.unpack_from(self._data)
        return id, attempts

    @fence.setter
    def fence(self, fence: Fence) -> None:
        _HEAD.pack_into(self._data, 0, _MAGIC, self._size, *fence)

    def get(self, slot: int) -> Values | None:
        """The values of a slot; None: they are not known, or no longer."""
        found, *values = self._packer.unpack_from(self._data, self._at(slot))
        return tuple(values) if found == slot and slot > 0 else None

    def put(self, slot: int, values: Sequence[float]) -> None:
        """Write a slot. A value that does not fit becomes the largest that does."""
        if not 0 < slot <= _MOST:  # a clock that a test starts at zero, or one that is far off
            return
        fitted = [_fit(kind, value) for kind, value in zip(self._layout.formats, values, strict=True)]
        self._packer.pack_into(self._data, self._at(slot), slot, *fitted)

    def last(self, before: int) -> tuple[int, Values] | None:
        """The newest slot before `before` that is still there."""
        best: tuple[int, Values] | None = None
        for number, *values in self._packer.iter_unpack(memoryview(self._data)[_HEAD.size :]):
            if 0 < number < before and (best is None or number > best[0]):
                best = number, tuple(values)
        return best

    def encode(self) -> bytes:
        return bytes(self._data)

    def _at(self, slot: int) -> int:
        return _HEAD.size + slot % self._size * self._packer.size


def bytes_of(layout: Layout, size: int) -> int:
    """The size of a ring's document."""
    return _HEAD.size + size * layout.packer().size


def gather(ring: Ring, first: int, count: int, layout: Layout) -> Values | None:
    """The `count` slots from `first` on, merged; None if none of them is known."""
    found = [values for slot in range(first, first + count) if (values := ring.get(slot)) is not None]
    return _merged(found, layout) if found else None


def _merged(found: Sequence[Values], layout: Layout) -> Values:
    weight = sum(values[layout.weight] for values in found)
    merged: list[float] = []
    for number, rule in enumerate(layout.rules):
        match rule:
            case "sum":
                merged.append(sum(values[number] for values in found))
            case "last":
                merged.append(found[-1][number])
            case "mean":
                total = sum(values[number] * values[layout.weight] for values in found)
                merged.append(total / weight if weight else 0.0)
    return tuple(merged)


def spread(count: int, slots: int) -> list[int]:
    """A number of events, divided evenly over slots.

    >>> spread(7, 3)
    [3, 2, 2]
    """
    each, rest = divmod(max(0, count), slots)
    return [each + (number < rest) for number in range(slots)]


def _fit(kind: str, value: float) -> float:
    if not isfinite(value):
        return 0
    return max(0, min(_MOST, round(value))) if kind == "I" else max(-3e38, min(3e38, value))
