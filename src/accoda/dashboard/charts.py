"""What was recorded, as charts, sparklines and a few numbers. Pure.

A sparkline is an SVG whose shapes have attributes and classes but no style: the page's policy allows no inline styles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accoda.errors import InvalidInput
from accoda.operations import moments
from accoda.operations.history.reading import BudgetSeriesView, Numbers, Series, SeriesView
from accoda.operations.history.ring import SHAPES, Span

SPANS: tuple[Span, ...] = ("1h", "24h", "7d")
LEAST = {"/s": 1.0, "s": 0.1, "": 4.0}
"""How far a scale goes if nothing happened, by its unit."""
SLOT = 15.0
"""Seconds of one point of a sparkline."""
WIDTH, HEIGHT = 120, 28
_PAD = 2


def span_of(query: Mapping[str, str]) -> Span:
    """The span that an address asks for."""
    asked = query.get("span", SPANS[0])
    for span in SPANS:
        if span == asked:
            return span
    raise InvalidInput("span", f"must be one of {', '.join(SPANS)}, not {asked!r:.40}")


def rate_chart(series: SeriesView) -> dict[str, Any]:
    """Jobs done, retried and dead, a second."""
    return _chart(
        series,
        "/s",
        {"label": "done", "values": series.done, "color": "accent", "fill": True},
        {"label": "retried", "values": series.retried, "color": "warn"},
        {"label": "dead", "values": series.buried, "color": "bad"},
    )


def time_chart(series: SeriesView) -> dict[str, Any]:
    """How long jobs waited, and how long they ran. Slots in which none was measured are spanned: where runs are rare,
    hardly two slots with a value are neighbours, and there would be no line."""
    return _chart(
        series,
        "s",
        {"label": "waited", "values": series.waited, "color": "calm", "span": True},
        {"label": "ran", "values": series.ran, "color": "accent", "span": True},
    )


def depth_chart(series: SeriesView) -> dict[str, Any]:
    """How many jobs were in which state."""
    return _chart(
        series,
        "",
        {"label": "ready", "values": series.ready, "color": "calm", "fill": True},
        {"label": "delayed", "values": series.delayed, "color": "warn"},
        {"label": "running", "values": series.taken, "color": "accent"},
        {"label": "dead", "values": series.dead, "color": "bad", "dash": True},
    )


def budget_chart(series: BudgetSeriesView) -> dict[str, Any] | None:
    """A budget's tokens; None: nothing is recorded yet."""
    if all(value is None for value in series.left):
        return None
    return _chart(
        series,
        "",
        {"label": "left", "values": series.left, "color": "accent", "fill": True},
        {"label": "reserved", "values": series.reserved, "color": "warn"},
        {"label": "used", "values": series.used, "color": "calm", "dash": True},
        {"label": "refused", "values": series.refused, "color": "bad"},
    )


def summary(recorded: Series, span: Span) -> dict[str, float | None]:
    """The whole span in a few numbers; None if unknown. They are made of the counts themselves: a sum of rounded rates
    would be off, and the total of a week could be less than that of its last day."""
    columns, step = recorded.columns, SHAPES[span].step / 1000
    counts = [count for count in columns["done"] if count is not None]
    # The last slot counts for the part of it that is recorded.
    seconds = len(counts) * step - (step - recorded.newest if columns["done"][-1] is not None else 0.0)
    return {
        "done": sum(counts),
        "rate": sum(counts) / seconds if counts else None,
        "waited": _mean(columns["waited"], columns["runs"]),
        "ran": _mean(columns["ran"], columns["runs"]),
    }


def is_recorded(series: SeriesView) -> bool:
    """Whether anything was recorded in the span."""
    return any(value is not None for value in series.done)


def _chart(series: SeriesView | BudgetSeriesView, unit: str, *lines: dict[str, Any]) -> dict[str, Any]:
    start = moments.read("start", series.start) / 1000
    return {
        "x": [start + n * series.step for n in range(len(lines[0]["values"]))],
        "unit": unit,
        "series": list(lines),
        "least": LEAST[unit],
    }


def _mean(values: Numbers, weights: Numbers) -> float | None:
    pairs = [(value, weight or 0) for value, weight in zip(values, weights, strict=True) if value is not None]
    runs = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / runs if runs else None


def spark_line(values: Sequence[float], top: float | None = None) -> str:
    """The `points` of a polyline; empty where there are fewer than two values.

    >>> spark_line([0, 5, 10])
    '0,26 60,14 120,2'
    """
    if len(values) < 2:
        return ""
    high = max(top or 0.0, *values) or 1.0
    step = WIDTH / (len(values) - 1)
    return " ".join(f"{_short(n * step)},{_short(_y(value, high))}" for n, value in enumerate(values))


def spark_area(values: Sequence[float], top: float | None = None) -> str:
    """The same line, closed along zero, so that values of zero have no area.

    >>> spark_area([0, 0, 10])
    '0,26 0,26 60,26 120,2 120,26'
    """
    line, zero = spark_line(values, top), _short(_y(0, 1))
    return f"0,{zero} {line} {WIDTH},{zero}" if line else ""


def _y(value: float, high: float) -> float:
    return HEIGHT - _PAD - max(0.0, value) / high * (HEIGHT - 2 * _PAD)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
