"""Payloads and results: the bytes that jobs carry, for handlers of every kind of type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import msgspec

from accoda.errors import InvalidInput
from accoda.payload import Codec, UnreadablePayload
from accoda.shape import over
from proof.fuzz.target import Target


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(msgspec.Struct):
    name: str
    amount: float = 0.0
    tags: list[str] = []


class Order(msgspec.Struct):
    id: int
    to: str
    lines: list[Line]
    parent: int | None = None
    colour: Colour = Colour.RED
    extra: dict[str, Any] = {}


class Made(msgspec.Struct, tag=True):
    id: int


class Gone(msgspec.Struct, tag=True):
    reason: str


class Tree(msgspec.Struct, array_like=True):
    value: int
    children: list[Tree] = []


@dataclass
class Visit:
    user: int
    at: datetime
    day: date
    lasted: timedelta
    price: Decimal
    key: UUID


class Typed(TypedDict, total=False):
    user_id: int
    names: list[str]
    flags: dict[int, bool]


VALUES: dict[str, tuple[Any, list[Any]]] = {
    "any": (Any, [{"a": [1, None, 2.5, b"x", "ü"], "b": {"c": True}}, [[[]]], {1: {2: {}}}, 7, datetime.now(UTC)]),
    "struct": (Order, [Order(1, "anna", [Line("tea", 2.5, ["x"])], 7, Colour.BLUE, {"k": [1]})]),
    "dataclass": (
        Visit,
        [Visit(7, datetime(2030, 1, 1, tzinfo=UTC), date(2030, 1, 1), timedelta(1), Decimal("1.5"), UUID(int=5))],
    ),
    "typed dict": (Typed, [{"user_id": 7, "names": ["a", "b"], "flags": {1: True}}]),
    "union": (Made | Gone, [Made(5), Gone("x")]),
    "optional": (Order | None, [None, Order(1, "x", [])]),
    "tree": (Tree, [Tree(1, [Tree(2), Tree(3, [Tree(4)])])]),
    "builtins": (dict[str, list[int | float | str | None]], [{"a": [1, 2.5, "x", None]}]),
    "tuples": (dict[tuple[int, int], set[str]], [{(1, 2): {"a", "b"}, (3, 4): set()}]),
}


def targets() -> list[Target]:
    """A decoder for each kind of type; the shape check; and a result that a caller waits for."""
    found = []
    for name, (kind, values) in VALUES.items():
        codec: Codec[Any] = Codec(kind)
        found.append(
            Target(f"payload: {name}", codec.decode, [msgspec.msgpack.encode(v) for v in values], (UnreadablePayload,))
        )
    seeds = [msgspec.msgpack.encode(value) for _, values in VALUES.values() for value in values]
    found.append(Target("payload: shape", lambda data: over(data, 8, 50, 8), seeds))
    orders = [msgspec.msgpack.encode(value) for value in VALUES["struct"][1]]
    return [*found, Target("result", _result, orders, (InvalidInput,))]


def _result(data: bytes) -> object:
    from accoda.model import JobInfo
    from accoda.runtime.results import _read

    return _read(JobInfo(1, "q", "done", b"", 0.0, 0, None, 0, 0, 0, None, 0, result=data), Order)
