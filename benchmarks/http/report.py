"""The table for people, the same as Markdown and JSON, and a small chart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from xml.sax.saxutils import escape

from benchmarks.report import RESULTS, STYLE, table

HEADINGS = ("service", "what", "requests/s", "jobs/s", "to bare", "body read", "CPU µs", "to bare")
GOAL_ONE, GOAL_MANY = 0.6, 50_000


@dataclass(frozen=True)
class Line:
    """Medians over the rounds. `to_bare` and `to_read` are ratios of requests a second to the bare endpoints'.

    `effort` is the server's processor time for a request in microseconds, and `effort_to_bare` what the same time would
    give of bare requests: it does not depend on what else runs on the machine.
    """

    name: str
    what: str
    requests: float
    jobs: float
    to_bare: float
    to_read: float
    effort: float
    effort_to_bare: float


def show(lines: Sequence[Line], connections: int, rounds: int) -> str:
    """The whole report."""
    cells = [
        (
            line.name,
            line.what,
            f"{line.requests:,.0f}",
            f"{line.jobs:,.0f}" if line.jobs != line.requests or number > 1 else "",
            f"{line.to_bare:.0%}",
            f"{line.to_read:.0%}",
            f"{line.effort:,.0f}",
            f"{line.effort_to_bare:.0%}",
        )
        for number, line in enumerate(lines)
    ]
    single = next(line for line in lines if (line.name, line.what) == ("memory", "enqueue one job"))
    batch = next(line for line in lines if (line.name, line.what) == ("memory", "enqueue 100 jobs"))
    verdicts = [
        f"- One job a request on memory://: {single.to_bare:.0%} of a bare Starlette endpoint that does nothing, "
        f"{single.to_read:.0%} of one that reads the body; by processor time {single.effort_to_bare:.0%} (goal: "
        f"{GOAL_ONE:.0%}).",
        f"- Batches of 100 on memory://: {batch.jobs:,.0f} jobs a second (goal: {GOAL_MANY:,}).",
    ]
    setting = (
        f"{connections} connections that stay open, {rounds} rounds in turns, one process that asks, one that answers."
    )
    return "\n".join([table(HEADINGS, cells), "", setting, "", *verdicts])


def save(lines: Sequence[Line], text: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "http.json").write_text(json.dumps({"rates": [asdict(line) for line in lines]}, indent=1) + "\n")
    (RESULTS / "http.md").write_text(text + "\n")
    (RESULTS / "http.svg").write_text(chart([line for line in lines if line.jobs == line.requests]))


def chart(lines: Sequence[Line]) -> str:
    """Bars: requests a second, each beside the bare endpoint."""
    most = max(line.requests for line in lines)
    parts, top = [], 46
    for line in lines:
        kind = "raw" if line.name.startswith("bare") else "ours"
        width = max(2, 300 * line.requests / most)
        words = f"{line.requests:,.0f}/s" + ("" if line.to_bare == 1 else f", {line.to_bare:.0%}")
        parts.append(f'<text class="small" x="10" y="{top + 11}">{escape(line.name)}</text>')
        parts.append(f'<rect class="{kind}" x="140" y="{top}" width="{width:.0f}" height="14" rx="2"/>')
        parts.append(f'<text class="small" x="{150 + width:.0f}" y="{top + 11}">{words}</text>')
        top += 24
    title = "Requests a second, one job each"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 580 {top + 4}" role="img">'
        f"<title>{title}</title><style>{STYLE}</style>"
        f'<text x="10" y="18" font-weight="600">{title}</text>'
        '<rect class="ours" x="10" y="27" width="9" height="9" rx="2"/><text class="small" x="24" y="36">Accoda</text>'
        '<rect class="raw" x="80" y="27" width="9" height="9" rx="2"/>'
        '<text class="small" x="94" y="36">a bare Starlette endpoint that does nothing, in the same run</text>'
        + "".join(parts)
        + "</svg>\n"
    )
