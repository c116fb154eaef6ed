"""The table for people, the same as Markdown and JSON, and a small chart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.measure import Rate
from benchmarks.wakeup import Wakeup

RESULTS = Path(__file__).parent / "results"
HEADINGS = ("storage", "what", "batch", "waiting", "Accoda/s", "engine/s", "ratio", "to few")


def rows(rates: Iterable[Rate]) -> list[tuple[str, ...]]:
    return [
        (
            rate.storage,
            rate.what,
            f"{rate.batch:,}",
            f"{rate.waiting:,}",
            f"{rate.accoda:,.0f}",
            f"{rate.raw:,.0f}",
            f"{rate.ratio:.0%}",
            f"{rate.to_few:.0%}",
        )
        for rate in rates
    ]


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns also line up in a terminal."""
    widths = [max(len(line[place]) for line in [headings, *lines]) for place in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        aligned = [str.ljust if place < 2 else str.rjust for place in range(len(cells))]
        return "| " + " | ".join(align(cell, w) for align, cell, w in zip(aligned, cells, widths, strict=True)) + " |"

    rule = ["-" * w if place < 2 else "-" * (w - 1) + ":" for place, w in enumerate(widths)]
    return "\n".join([line(headings), line(rule), *map(line, lines)])


def save(rates: Sequence[Rate], wakeups: Sequence[Wakeup], text: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    facts = {"rates": [asdict(rate) for rate in rates], "wakeups": [asdict(wakeup) for wakeup in wakeups]}
    (RESULTS / "bench.json").write_text(json.dumps(facts, indent=1) + "\n")
    (RESULTS / "bench.md").write_text(text + "\n")
    (RESULTS / "bench.svg").write_text(
        chart([rate for rate in rates if rate.what == "take+settle" and rate.waiting == 1000])
    )


STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f } .small { fill: #57606a }
.ours { fill: #2f6feb } .raw { fill: #c8d1dc }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9da7b3 } .ours { fill: #5c93ff } .raw { fill: #3d444d }
}
"""


def chart(rates: Sequence[Rate]) -> str:
    """Bars: jobs taken and settled a second, Accoda over the bare engine, one pair for each row."""
    most = max(max(rate.accoda, rate.raw) for rate in rates)
    parts = []
    top = 46
    storage = ""
    for rate in rates:
        if rate.storage != storage:
            storage = rate.storage
            most = max(max(r.accoda, r.raw) for r in rates if r.storage == storage)
            parts.append(f'<text x="10" y="{top + 12}" font-weight="600">{escape(storage)}</text>')
            top += 22
        label = f"batch {rate.batch:,}"
        parts.append(f'<text class="small" x="10" y="{top + 14}">{label}</text>')
        for place, (kind, value) in enumerate((("ours", rate.accoda), ("raw", rate.raw))):
            width = max(2, 330 * value / most)
            parts.append(f'<rect class="{kind}" x="210" y="{top + place * 10}" width="{width:.0f}" height="9" rx="2"/>')
        parts.append(f'<text class="small" x="550" y="{top + 14}">{rate.accoda:,.0f}/s, {rate.ratio:.0%}</text>')
        top += 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {top + 10}" role="img">'
        f"<title>Jobs taken and settled a second</title><style>{STYLE}</style>"
        '<text x="10" y="18" font-weight="600">Jobs taken and settled a second</text>'
        '<rect class="ours" x="10" y="27" width="9" height="9" rx="2"/><text class="small" x="24" y="36">Accoda</text>'
        '<rect class="raw" x="80" y="27" width="9" height="9" rx="2"/>'
        '<text class="small" x="94" y="36">the bare engine doing the same fenced work, in the same run</text>'
        + "".join(parts)
        + "</svg>\n"
    )
