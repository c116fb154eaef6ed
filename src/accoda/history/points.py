"""What a history is made of: points in time, and the spans that people look at. Records only."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from msgspec import Struct

P = TypeVar("P", bound="Point | BudgetPoint")

Span = Literal["1h", "24h", "7d"]


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


class Point(Struct, array_like=True, frozen=True):
    """A queue in one slot, which began at `at` (milliseconds).

    Events in the slot: `done`, `retried`, `buried`, `expired`. At its end: `ready`, `delayed`, `taken`, `dead`, and
    `oldest_age` in seconds. `waited` and `ran` are means in seconds over the `runs` that workers measured in it.
    `known` is False where nobody recorded: the rest is then nothing but zeros.
    """

    at: int
    done: int = 0
    retried: int = 0
    buried: int = 0
    expired: int = 0
    ready: int = 0
    delayed: int = 0
    taken: int = 0
    dead: int = 0
    oldest_age: float = 0.0
    waited: float = 0.0
    ran: float = 0.0
    runs: int = 0
    known: bool = True


class BudgetPoint(Struct, array_like=True, frozen=True):
    """A budget in one slot: what it had `left` and `reserved` at its end, what was `used` and `refused` in it."""

    at: int
    left: float = 0.0
    reserved: float = 0.0
    used: float = 0.0
    refused: int = 0
    known: bool = True


class Series(Struct, Generic[P], frozen=True):
    """The points of a span, the oldest first: always as many as the span has slots, `step` seconds apart."""

    step: float
    points: list[P]


class ServiceRate(Struct, frozen=True):
    """How fast a queue's line moved lately, while jobs were waiting: runs that ended a second.

    Between `low` and `high` it is most of the time. `ran` is the mean of a run in seconds (0: nobody measured one),
    `over` the seconds of which all this is known.
    """

    jobs_a_second: float
    low: float
    high: float
    ran: float
    over: float
