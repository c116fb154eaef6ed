"""Figures, the committed ones, and what is to be said of the difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.report import RESULTS, table

COMMITTED = RESULTS / "check.json"
TOLERANCE = 0.20


@dataclass(frozen=True)
class Figure:
    """Jobs a second of Accoda and of the yardstick, and the median of the rounds' own ratios."""

    name: str
    accoda: float
    yardstick: float
    ratio: float


def committed() -> dict[str, float]:
    """Ratios by name. A check without them could not fail, so there must be some."""
    if not COMMITTED.exists():
        raise SystemExit(f"{COMMITTED.name} is not there: run `python -m benchmarks.check --save` on the commit before")
    return {each["name"]: each["ratio"] for each in json.loads(COMMITTED.read_text())}


def save(figures: Sequence[Figure]) -> None:
    COMMITTED.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")


def is_slower(figure: Figure, before: dict[str, float]) -> bool:
    return figure.name in before and figure.ratio < (1 - TOLERANCE) * before[figure.name]


def text(figures: Sequence[Figure], before: dict[str, float]) -> str:
    rows = [
        (
            figure.name,
            _word(figure, before),
            f"{figure.accoda:,.0f}",
            f"{figure.yardstick:,.0f}",
            f"{figure.ratio:.3f}",
            f"{before[figure.name]:.3f}" if figure.name in before else "",
        )
        for figure in figures
    ]
    return table(("what", "verdict", "Accoda/s", "yardstick/s", "ratio", "committed"), rows)


def _word(figure: Figure, before: dict[str, float]) -> str:
    if figure.name not in before:
        return "new"
    if is_slower(figure, before):
        return "SLOWER"
    return "faster: save it" if figure.ratio > before[figure.name] / (1 - TOLERANCE) else "as before"
