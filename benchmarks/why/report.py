"""The table, and a chart: what was said against what came."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.report import table
from benchmarks.why.run import Asked

RESULTS = Path(__file__).parent.parent / "results"
HEADINGS = ("jobs", "", "asked", "median wait", "median error", "within the range", "median range")


def summary(asked: Sequence[Asked]) -> str:
    """All; those in line, and those with a start time, of which it is no art; by queue; by how long they waited."""
    late = [a for a in asked if a.gate == "delayed"]
    groups: list[tuple[str, str, list[Asked]]] = [("all", "", list(asked))]
    groups += [("state", "ready", [a for a in asked if a.gate != "delayed"]), ("state", "delayed", late)]
    groups += [("queue", name, [a for a in asked if a.queue == name]) for name in sorted({a.queue for a in asked})]
    for low, high, name in ((0, 1, "up to 1 s"), (1, 5, "1 to 5 s"), (5, 20, "5 to 20 s"), (20, 1e9, "over 20 s")):
        groups.append(("wait", name, [a for a in asked if low <= a.real < high]))
    lines = [_row(what, name, of) for what, name, of in groups if of]
    took = sorted(a.took for a in asked)
    head = (
        f"{len(asked)} estimates: median error {median(a.error for a in asked):.0%} of the real wait (of a second, "
        f"where it was shorter); the start lay within low..high in {_share(asked):.0%}. One answer took "
        f"{median(took) * 1000:.1f} ms, 95 % at most {took[int(len(took) * 0.95)] * 1000:.1f} ms.\n"
    )
    return head + "\n" + table(HEADINGS, lines)


def save(asked: Sequence[Asked], text: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    facts = [[a.queue, a.gate, a.ahead, *(round(n, 2) for n in (a.low, a.likely, a.high, a.real))] for a in asked]
    names = ["queue", "gate", "ahead", "low", "likely", "high", "real"]
    lines = ",\n".join(msgspec.json.encode(each).decode() for each in [names, *facts])
    (RESULTS / "why.json").write_text(f"[\n{lines}\n]\n")
    (RESULTS / "why.md").write_text(text + "\n")
    (RESULTS / "why.svg").write_text(chart(asked))


def _row(what: str, name: str, of: list[Asked]) -> tuple[str, ...]:
    return (
        what,
        name,
        str(len(of)),
        f"{median(a.real for a in of):.1f} s",
        f"{median(a.error for a in of):.0%}",
        f"{_share(of):.0%}",
        f"{median(a.high - a.low for a in of):.1f} s",
    )


def _share(of: Sequence[Asked]) -> float:
    return sum(a.within for a in of) / len(of)


STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f } .small { fill: #57606a }
.dot { fill: #2f6feb; fill-opacity: .6 } .out { fill: #cf222e; fill-opacity: .7 } line { stroke: #c8d1dc }
.range { stroke: #2f6feb; stroke-opacity: .18 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9da7b3 } .dot { fill: #5c93ff } .out { fill: #ff7b72 } line { stroke: #3d444d }
}
"""
SIDE, LEFT, TOP, LEAST, MOST = 400, 60, 40, 0.1, 100.0


def chart(asked: Sequence[Asked]) -> str:
    """A dot for each question, both axes logarithmic: on the line the estimate was right; red: outside its range."""

    def place(seconds: float) -> float:
        inside = min(max(seconds, LEAST), MOST)
        return SIDE * log10(inside / LEAST) / log10(MOST / LEAST)

    parts = [f'<line x1="{LEFT}" y1="{TOP + SIDE}" x2="{LEFT + SIDE}" y2="{TOP}"/>']
    for tick in (0.1, 1, 10, 100):
        at = place(tick)
        parts.append(f'<line x1="{LEFT + at:.0f}" y1="{TOP}" x2="{LEFT + at:.0f}" y2="{TOP + SIDE}"/>')
        parts.append(f'<text class="small" x="{LEFT + at - 10:.0f}" y="{TOP + SIDE + 16}">{tick:g} s</text>')
        parts.append(f'<text class="small" x="14" y="{TOP + SIDE - at + 4:.0f}">{tick:g} s</text>')
    for each in asked:
        x = LEFT + place(each.real)
        low, high, y = (TOP + SIDE - place(span) for span in (each.low, each.high, each.likely))
        parts.append(f'<line class="range" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>')
        kind = "dot" if each.within else "out"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    title = "When it was said to start (up), and when it did (right)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + SIDE + 30} {TOP + SIDE + 30}" role="img">'
        f'<title>{title}</title><style>{STYLE}</style><text x="14" y="20" font-weight="600">{title}</text>'
        + "".join(parts)
        + "</svg>\n"
    )
