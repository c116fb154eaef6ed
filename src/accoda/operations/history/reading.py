"""Counters over time as people look at them: a fixed number of points for a queue or a budget over a span."""

from __future__ import annotations

from math import sqrt
from typing import get_args

from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.model import check_name, check_queue
from accoda.operations.history import sparks
from accoda.operations.history.plan import TOTAL
from accoda.operations.history.recorder import QUEUE as CLOCK
from accoda.operations.history.recorder import read_ring
from accoda.operations.history.ring import BUDGET, FINE, QUEUE, SHAPES, STEP, Layout, Span, Values, gather
from accoda.operations.history.sparks import Spark
from accoda.operations.host import Host
from accoda.operations.moments import now_of, rfc3339
from accoda.storage.protocol import Store

LATE = 4
"""Slots by which the recorder may be late before the gap is shown."""
RATED = 40
"""Slots that a rate is made of: the last ten minutes."""
ENOUGH = 2
"""Slots with jobs waiting at their end that a rate needs at least."""

Numbers = list[float | None]


class Series(Struct, frozen=True):
    """The slots of a span, from the moment `at` on (milliseconds): for each name of the layout a value for every slot,
    None if nothing was recorded in it. The last slot is not over yet in most cases: `newest` seconds of it are
    recorded."""

    at: int
    columns: dict[str, Numbers]
    newest: float


class ServiceRate(Struct, frozen=True):
    """How fast a queue's line moved lately, while jobs were waiting: runs that ended a second.

    It is between `low` and `high` most of the time. `ran` is the mean of a run in seconds (0: none was measured),
    `over` the seconds that this was measured over.
    """

    jobs_a_second: float
    low: float
    high: float
    ran: float
    over: float


class SeriesView(Struct, rename="camel", frozen=True, kw_only=True):
    """A queue over a span (null: all queues except Accoda's own), as columns of equal length, a value for every slot.

    The first slot begins at `start`, each lasts `step` seconds; the last one may not be over yet. Null: nothing was
    recorded in that slot. `done`, `retried`, `buried` and `expired` are a second, in the last slot over the part of it
    that is recorded; `ready`, `delayed`, `taken`, `dead` and `oldest_age` (seconds) are as of the slot's end; `waited`
    and `ran` are means in seconds over the `runs` that workers measured, and null without any.
    """

    queue: str | None
    span: Span
    step: float
    start: str
    done: Numbers
    retried: Numbers
    buried: Numbers
    expired: Numbers
    ready: Numbers
    delayed: Numbers
    taken: Numbers
    dead: Numbers
    oldest_age: Numbers
    waited: Numbers
    ran: Numbers
    runs: Numbers

    @classmethod
    def of(cls, queue: str | None, span: Span, series: Series) -> SeriesView:
        columns, step = dict(series.columns), SHAPES[span].step / 1000
        for name in ("done", "retried", "buried", "expired"):
            *ended, newest = columns[name]
            columns[name] = [*(_rate(count, step) for count in ended), _rate(newest, series.newest)]
        for name in ("waited", "ran"):
            pairs = zip(columns[name], columns["runs"], strict=True)
            columns[name] = [round(mean, 6) if mean is not None and runs else None for mean, runs in pairs]
        return cls(queue=queue, span=span, step=step, start=rfc3339(series.at), **columns)


class BudgetSeriesView(Struct, rename="camel", frozen=True, kw_only=True):
    """A budget over a span: tokens `left` and `reserved` at the end of each slot, `used` and `refused` in it. Null:
    nothing was recorded in that slot."""

    name: str
    span: Span
    step: float
    start: str
    left: Numbers
    reserved: Numbers
    used: Numbers
    refused: Numbers


async def series(host: Host, queue: str | None = None, span: Span = "1h") -> SeriesView:
    """A queue over a span; None: all queues except Accoda's own. A queue that does not exist did nothing."""
    if queue is not None:
        check_queue(queue)
    return SeriesView.of(queue, span, await read_history(await host.connections.get(), queue, _check(span)))


async def budget(host: Host, name: str, span: Span = "1h") -> BudgetSeriesView:
    """A budget over a span."""
    check_name("name", name)
    found = await read_budget_history(await host.connections.get(), name, _check(span))
    step = SHAPES[span].step / 1000
    return BudgetSeriesView(name=name, span=span, step=step, start=rfc3339(found.at), **found.columns)


async def read_history(store: Store, queue: str | None, span: Span) -> Series:
    """A queue over a span, as it was recorded; None: all queues except Accoda's own."""
    return await _read(store, TOTAL if queue is None else queue, span, QUEUE)


async def read_budget_history(store: Store, name: str, span: Span) -> Series:
    """A budget over a span, as it was recorded."""
    return await _read(store, f"budget:{name}", span, BUDGET)


async def read_sparks(store: Store) -> dict[str, Spark]:
    """The last quarter of an hour of every queue that was active in it: 60 values a second, the last one now."""
    found = await store.read(sparks.DOCUMENT)
    if found is None:
        return {}
    read = sparks.read(found.value)
    return sparks.lines_at(read, _last(read.slot, await now_of(store, CLOCK)))


async def read_rate(store: Store, queue: str) -> ServiceRate | None:
    """How fast a queue's line moves when jobs wait in it. None: in the last ten minutes none waited, none ended, or
    nothing was recorded; then it is unknown how fast it could go."""
    return rate_of(await read_history(store, queue, FINE))


def rate_of(series: Series) -> ServiceRate | None:
    """The rate in the last slots. Pure.

    Only those with jobs waiting at their end count: in the others workers did all there was, and could have done more.
    """
    names = ("done", "retried", "buried", "ready", "ran", "runs")
    rows = list(zip(*(series.columns[name] for name in names), strict=True))[-RATED:]
    busy = [[value or 0.0 for value in row] for row in rows if row[3]]
    seconds = len(busy) * STEP / 1000
    ends = [done + retried + buried for done, retried, buried, *_ in busy]
    if len(busy) < ENOUGH or not sum(ends):
        return None
    rate = sum(ends) / seconds
    runs = sum(row[5] for row in busy)
    # The spread of a minute's rate: slots vary by chance, and the mean of four of them varies half as much.
    deviation = sqrt(sum((count / (STEP / 1000) - rate) ** 2 for count in ends) / len(ends)) / 2
    ran = sum(row[4] * row[5] for row in busy) / runs if runs else 0.0
    return ServiceRate(rate, max(rate / 4, rate - 1.645 * deviation), rate + 1.645 * deviation, ran, seconds)


async def _read(store: Store, name: str, span: Span, layout: Layout) -> Series:
    shape, ratio = SHAPES[span], SHAPES[span].step // STEP
    fine = await read_ring(store, name, FINE, layout)
    fine_total = fine if name == TOTAL else await read_ring(store, TOTAL, FINE, QUEUE)
    coarse, coarse_total = fine, fine_total
    if span != FINE:
        coarse = await read_ring(store, name, span, layout)
        coarse_total = coarse if name == TOTAL else await read_ring(store, TOTAL, span, QUEUE)
    newest = fine_total.last(1 << 32)
    last = _last(0 if newest is None else newest[0], await now_of(store, CLOCK))
    end = last // ratio  # not over yet in most cases; without it a week would hold less than its last hour
    first = end - shape.size + 1
    # A coarse slot is merged when it ends, but that of a queue that became idle in it a round later, or not yet.
    reach = (last - SHAPES[FINE].size) // ratio if ratio > 1 else end
    values = [
        coarse.get(slot) or (gather(fine, slot * ratio, ratio, layout) if slot > reach else None)
        for slot in range(first, end + 1)
    ]
    known = [
        coarse_total.get(slot) is not None
        or (slot > reach and gather(fine_total, slot * ratio, ratio, QUEUE) is not None)
        for slot in range(first, end + 1)
    ]
    ends = [min((slot + 1) * ratio, last + 1) * STEP / 1000 for slot in range(first, end + 1)]
    found = coarse.last(first)
    before = None if found is None else (found[1], (found[0] + 1) * shape.step / 1000)
    filled = _fill(values, known, ends, layout, before)
    columns: dict[str, Numbers] = {
        each: [None if values is None else _whole(values[number]) for values in filled]
        for number, each in enumerate(layout.names)
    }
    return Series(first * shape.step, columns, (last + 1 - end * ratio) * STEP / 1000)


def _last(newest: int, at: int) -> int:
    """The last slot to show: the newest that is recorded, unless the recorder stopped, or the clock has gone back."""
    ended = at // STEP - 1
    return newest if ended - LATE <= newest <= ended else ended


def _check(span: Span) -> Span:
    if span not in get_args(Span):
        raise InvalidInput("span", f"must be one of {', '.join(get_args(Span))}, not {span!r:.60}")
    return span


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None else round(count / seconds, 4)


def _fill(
    values: list[Values | None],
    known: list[bool],
    ends: list[float],
    layout: Layout,
    before: tuple[Values, float] | None,
) -> list[Values | None]:
    """Fill in what was not written because nothing had changed: no events, and the levels of before.

    `ends` are the seconds at which the slots end; `before` is what was written last before them, and when that ended.
    """
    held, since = before if before is not None else (None, ends[0])
    filled: list[Values | None] = []
    for each, is_known, end in zip(values, known, ends, strict=True):
        if each is not None:
            held, since = each, end
            filled.append(each)
        elif is_known:
            filled.append(_still(held, layout, end - since))
        else:
            filled.append(None)
    return filled


def _still(held: Values | None, layout: Layout, later: float) -> Values:
    if held is None:
        return (0.0,) * len(layout.rules)
    still = [value if rule == "last" else 0.0 for value, rule in zip(held, layout.rules, strict=True)]
    if layout is QUEUE and still[4]:
        still[8] += later  # the oldest waiting job is older by now
    return tuple(still)


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value
