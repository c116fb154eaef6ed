"""Sparklines. Pure.

A sparkline is an SVG whose shapes have attributes and classes but no style: the page's policy allows no inline styles.
"""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 120, 28
_PAD = 2


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
    """The same line, closed along the bottom."""
    line = spark_line(values, top)
    return f"0,{HEIGHT} {line} {WIDTH},{HEIGHT}" if line else ""


def _y(value: float, high: float) -> float:
    return HEIGHT - _PAD - max(0.0, value) / high * (HEIGHT - 2 * _PAD)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
