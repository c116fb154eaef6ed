"""Histories as people look at them: a fixed number of points, whatever was written and whatever was not."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TypeVar

import msgspec

from accoda.history import sparks
from accoda.history.plan import TOTAL
from accoda.history.points import FINE, SHAPES, STEP, BudgetPoint, Point, Series, ServiceRate, Span
from accoda.history.recorder import QUEUE as CLOCK
from accoda.history.ring import BUDGET, QUEUE, Layout, Values, gather
from accoda.history.rings import read_ring
from accoda.history.sparks import Spark
from accoda.storage.protocol import Storage

P = TypeVar("P", Point, BudgetPoint)

LATE = 4
"""Slots by which the recorder may be late before its silence is shown as such."""
RATED = 40
"""Slots of which a rate is made: the last ten minutes."""
ENOUGH = 2
"""Slots with jobs waiting at their end of which it is made at least."""


async def read_history(store: Storage, queue: str | None, span: Span) -> Series[Point]:
    """What happened in a queue; None: in all of them, but for our own."""
    return await _read(store, TOTAL if queue is None else queue, span, QUEUE, _queue_point)


async def read_budget_history(store: Storage, name: str, span: Span) -> Series[BudgetPoint]:
    """What became of a budget's tokens."""
    return await _read(store, f"budget:{name}", span, BUDGET, _budget_point)


async def read_sparks(store: Storage) -> dict[str, Spark]:
    """The last quarter of an hour of every queue that did something in it."""
    found = await store.read(sparks.DOCUMENT)
    if found is None:
        return {}
    read = sparks.read(found.value)
    return sparks.shown(read, _last(read.slot, (await store.peek(CLOCK)).at))


async def read_rate(store: Storage, queue: str) -> ServiceRate | None:
    """How fast a queue's line moves when jobs wait in it. None: in the last ten minutes none waited, none ended, or
    nobody recorded; then it is not known how fast it could go."""
    return rate_of((await read_history(store, queue, FINE)).points[-RATED:])


def rate_of(points: list[Point]) -> ServiceRate | None:
    """The rate in these slots, the oldest first. Pure.

    Only those with jobs waiting at their end count: in the others workers did what came in, and could have done more.
    """
    busy = [point for point in points if point.known and point.ready > 0]
    seconds = len(busy) * STEP / 1000
    ends = [point.done + point.retried + point.buried for point in busy]
    if len(busy) < ENOUGH or not sum(ends):
        return None
    rate = sum(ends) / seconds
    runs = sum(point.runs for point in busy)
    # The spread of a minute's rate: slots differ by chance, and so does the mean of four of them, half as much.
    deviation = sqrt(sum((count / (STEP / 1000) - rate) ** 2 for count in ends) / len(ends)) / 2
    ran = sum(point.ran * point.runs for point in busy) / runs if runs else 0.0
    return ServiceRate(rate, max(rate / 4, rate - 1.645 * deviation), rate + 1.645 * deviation, ran, seconds)


async def _read(
    store: Storage, name: str, span: Span, layout: Layout, make: Callable[[int, Values | None], P]
) -> Series[P]:
    shape, ratio = SHAPES[span], SHAPES[span].step // STEP
    fine = await read_ring(store, name, FINE, layout)
    told = fine if name == TOTAL else await read_ring(store, TOTAL, FINE, QUEUE)
    coarse, heard = fine, told
    if span != FINE:
        coarse = await read_ring(store, name, span, layout)
        heard = coarse if name == TOTAL else await read_ring(store, TOTAL, span, QUEUE)
    newest = told.last(1 << 32)
    last = _last(0 if newest is None else newest[0], (await store.peek(CLOCK)).at)
    end = (last + 1) // ratio - 1
    first = end - shape.size + 1
    # A coarse slot is put together when it ends, but of a queue that fell asleep in it a round later, or not yet.
    reach = (last - SHAPES[FINE].size) // ratio if ratio > 1 else end
    values = [
        coarse.get(slot) or (gather(fine, slot * ratio, ratio, layout) if slot > reach else None)
        for slot in range(first, end + 1)
    ]
    known = [
        heard.get(slot) is not None or (slot > reach and gather(told, slot * ratio, ratio, QUEUE) is not None)
        for slot in range(first, end + 1)
    ]
    filled = _fill(values, known, coarse.last(first), first, layout, shape.step / 1000)
    points = [make((first + number) * shape.step, each) for number, each in enumerate(filled)]
    return Series(shape.step / 1000, points)


def _last(newest: int, at: int) -> int:
    """The last slot to be shown: the newest that is recorded, unless the recorder is silent, or the clock gone back."""
    ended = at // STEP - 1
    return newest if ended - LATE <= newest <= ended else ended


def _fill(
    values: list[Values | None],
    known: list[bool],
    before: tuple[int, Values] | None,
    first: int,
    layout: Layout,
    step: float,
) -> list[Values | None]:
    """Put in what was not written because nothing had changed: no events, and what was there before is there still."""
    held = None if before is None else before[1]
    since = first if before is None else before[0]
    filled: list[Values | None] = []
    for number, each in enumerate(values):
        if each is not None:
            held, since = each, first + number
            filled.append(each)
        elif known[number]:
            filled.append(_still(held, layout, (first + number - since) * step))
        else:
            filled.append(None)
    return filled


def _still(held: Values | None, layout: Layout, later: float) -> Values:
    if held is None:
        return (0.0,) * len(layout.rules)
    still = [value if rule == "last" else 0.0 for value, rule in zip(held, layout.rules, strict=True)]
    if layout is QUEUE and still[4]:
        still[8] += later  # the oldest that waits is older by now
    return tuple(still)


def _queue_point(at: int, values: Values | None) -> Point:
    return Point(at, known=False) if values is None else msgspec.convert((at, *map(_whole, values)), Point)


def _budget_point(at: int, values: Values | None) -> BudgetPoint:
    return BudgetPoint(at, known=False) if values is None else msgspec.convert((at, *map(_whole, values)), BudgetPoint)


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value
