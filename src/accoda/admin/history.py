"""What happened in queues and to budgets, over an hour, a day and a week. `accoda.history` says how it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from msgspec import Struct

from accoda.admin.moments import shown
from accoda.errors import InvalidInput
from accoda.history import Point, Series, Span, Spark, read_budget_history, read_history, read_sparks
from accoda.model import check_name, check_queue

if TYPE_CHECKING:
    from accoda.app import App

__all__ = ["BudgetSeriesView", "SeriesView", "Span", "Spark", "budget", "series", "spark_lines", "sparks"]

Numbers = list[float | None]


class SeriesView(Struct, rename="camel", frozen=True, kw_only=True):
    """A queue over a span (null: all queues but our own), as columns of equal length, a value for every slot.

    The first slot begins at `start`, each lasts `step` seconds. Null: nobody recorded in that slot. `done`, `retried`,
    `buried` and `expired` are a second; `ready`, `delayed`, `taken`, `dead` and `oldest_age` (seconds) are as of the
    slot's end; `waited` and `ran` are means in seconds over the `runs` that workers measured, and null where none was.
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
    def of(cls, queue: str | None, span: Span, found: Series[Point]) -> SeriesView:
        points = found.points
        rates = {name: _rate(found, name) for name in ("done", "retried", "buried", "expired")}
        levels = ("ready", "delayed", "taken", "dead", "oldest_age", "runs")
        held = {name: [getattr(point, name) if point.known else None for point in points] for name in levels}
        means = {name: _means(points, name) for name in ("waited", "ran")}
        start = shown(points[0].at) or ""
        return cls(queue=queue, span=span, step=found.step, start=start, **rates, **held, **means)


class BudgetSeriesView(Struct, rename="camel", frozen=True, kw_only=True):
    """A budget over a span: tokens `left` and `reserved` at the end of each slot, `used` and `refused` in it. Null:
    nobody recorded in that slot."""

    name: str
    span: Span
    step: float
    start: str
    left: Numbers
    reserved: Numbers
    used: Numbers
    refused: Numbers


async def series(app: App, queue: str | None = None, span: Span = "1h") -> SeriesView:
    """A queue over a span; None: all queues but our own. A queue that nobody knows did nothing."""
    if queue is not None:
        check_queue(queue)
    return SeriesView.of(queue, span, await read_history(await app.connections.get(), queue, _check(span)))


async def budget(app: App, name: str, span: Span = "1h") -> BudgetSeriesView:
    """A budget over a span."""
    check_name("name", name)
    found = await read_budget_history(await app.connections.get(), name, _check(span))
    names = ("left", "reserved", "used", "refused")
    columns = {each: [getattr(point, each) if point.known else None for point in found.points] for each in names}
    return BudgetSeriesView(name=name, span=span, step=found.step, start=shown(found.points[0].at) or "", **columns)


async def sparks(app: App) -> dict[str, list[float]]:
    """Jobs done a second in the last quarter of an hour: 60 values, the last one now, of each queue that did any."""
    return {queue: spark.done for queue, spark in (await spark_lines(app)).items()}


async def spark_lines(app: App) -> dict[str, Spark]:
    """The same, with the runs that failed a second."""
    return await read_sparks(await app.connections.get())


def _check(span: Span) -> Span:
    if span not in get_args(Span):
        raise InvalidInput("span", f"must be one of {', '.join(get_args(Span))}, not {span!r:.60}")
    return span


def _rate(found: Series[Point], name: str) -> Numbers:
    return [round(getattr(point, name) / found.step, 4) if point.known else None for point in found.points]


def _means(points: list[Point], name: str) -> Numbers:
    return [round(getattr(point, name), 6) if point.known and point.runs else None for point in points]
