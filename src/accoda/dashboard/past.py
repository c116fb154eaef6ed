"""What was recorded, as charts and in a few numbers. Pure."""

from __future__ import annotations

from typing import Any

from accoda.admin.history import SeriesView
from accoda.dashboard.words import moment_of

SPANS = ("1h", "24h", "7d")
LEAST = {"/s": 1.0, "s": 0.1, "": 4.0}
"""How far a scale goes where nothing happened, by its unit."""
SLOT = 15.0
"""Seconds of one point of a sparkline."""


def rate_chart(series: SeriesView) -> dict[str, Any]:
    """Jobs done, tried again and dead, a second."""
    return _chart(
        series,
        "/s",
        {"label": "done", "values": series.done, "color": "accent", "fill": True},
        {"label": "retried", "values": series.retried, "color": "warn"},
        {"label": "dead", "values": series.buried, "color": "bad"},
    )


def time_chart(series: SeriesView) -> dict[str, Any]:
    """How long jobs waited, and how long they ran; a gap where none was measured."""
    return _chart(
        series,
        "s",
        {"label": "waited", "values": series.waited, "color": "calm"},
        {"label": "ran", "values": series.ran, "color": "accent"},
    )


def depth_chart(series: SeriesView) -> dict[str, Any]:
    """How many were in which state."""
    return _chart(
        series,
        "",
        {"label": "ready", "values": series.ready, "color": "calm", "fill": True},
        {"label": "delayed", "values": series.delayed, "color": "warn"},
        {"label": "running", "values": series.taken, "color": "accent"},
        {"label": "dead", "values": series.dead, "color": "bad", "dash": True},
    )


def summary(series: SeriesView) -> dict[str, float | None]:
    """The whole span in a few numbers; None where nobody knows."""
    rates = [rate for rate in series.done if rate is not None]
    return {
        "done": round(sum(rates) * series.step),
        "rate": sum(rates) / len(rates) if rates else None,
        "waited": _mean(series.waited, series.runs),
        "ran": _mean(series.ran, series.runs),
    }


def is_recorded(series: SeriesView) -> bool:
    """Whether anybody wrote down anything in the span."""
    return any(value is not None for value in series.done)


def _chart(series: SeriesView, unit: str, *lines: dict[str, Any]) -> dict[str, Any]:
    start = moment_of(series.start) / 1000
    return {
        "x": [start + n * series.step for n in range(len(series.done))],
        "unit": unit,
        "series": list(lines),
        "least": LEAST[unit],
    }


def _mean(values: list[float | None], weights: list[float | None]) -> float | None:
    pairs = [(value, weight or 0) for value, weight in zip(values, weights, strict=True) if value is not None]
    runs = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / runs if runs else None
