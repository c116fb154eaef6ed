"""What was found: a table for each storage, the same as Markdown and JSON, and a chart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.report import RESULTS, STYLE, table

HEADINGS = ("peer", "setting", "jobs/s", "lowest", "highest", "to the fastest peer", "jobs")
NAMES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite"}


@dataclass(frozen=True)
class Row:
    """One peer on one storage: a rate for each round, None where there is none; `failed` says why."""

    storage: str
    name: str
    title: str
    version: str
    setting: str
    jobs: int
    ours: bool
    durable: bool
    rates: Sequence[float | None]
    failed: str = ""

    @property
    def label(self) -> str:
        """Short, and different for each row of a storage: the setting begins with what tells it from others."""
        return f"{self.title}, {self.setting.partition(', ')[0]}"

    @property
    def known(self) -> list[float]:
        return [rate for rate in self.rates if rate is not None]

    @property
    def rate(self) -> float:
        return median(self.known)


@dataclass(frozen=True)
class Findings:
    """A whole run. `about` says what it ran on, by storage and for "machine"."""

    about: dict[str, str]
    rows: Sequence[Row]

    def of(self, storage: str) -> list[Row]:
        """The rows of a storage that have a rate, fastest first."""
        found = [row for row in self.rows if row.storage == storage and row.known]
        return sorted(found, key=lambda row: row.rate, reverse=True)

    @property
    def storages(self) -> list[str]:
        return [storage for storage in NAMES if self.of(storage)]


def from_json(text: str) -> Findings:
    facts: dict[str, Any] = json.loads(text)
    return Findings(facts["about"], [Row(**row) for row in facts["rows"]])


def fastest_peer(rows: Sequence[Row], durable: bool = False) -> Row | None:
    """The fastest that is not Accoda; of those alone, if told, that lose nothing in a power cut."""
    return max((r for r in rows if not r.ours and (r.durable or not durable)), key=lambda r: r.rate, default=None)


def ratio(row: Row, other: Row) -> float | None:
    """How many times as fast: the median of the rounds' own ratios, since what the machine gives varies with time."""
    pairs = zip(row.rates, other.rates, strict=True)
    found = [mine / theirs for mine, theirs in pairs if mine is not None and theirs is not None]
    return median(found) if found else None


def text(findings: Findings) -> str:
    """The whole report as Markdown that can be read in a terminal, too."""
    parts = [findings.about["machine"]]
    for storage in findings.storages:
        rows = findings.of(storage)
        parts.append(f"## {NAMES[storage]}\n\n{findings.about[storage]}.")
        parts.append(table(HEADINGS, [_cells(row, fastest_peer(rows)) for row in rows]))
        parts += verdicts(rows)
    failed = [row for row in findings.rows if row.failed]
    if failed:
        parts.append("## Not measured")
        parts.append("\n".join(f"- {r.label}, on {NAMES[r.storage]}: {r.failed}" for r in failed))
    return "\n\n".join(parts) + "\n"


def verdicts(rows: Sequence[Row]) -> list[str]:
    """A sentence for each of Accoda's rows: how it compares with the fastest peer, and the fastest durable one."""
    lines = []
    for ours in (row for row in rows if row.ours):
        best, best_durable = fastest_peer(rows), fastest_peer(rows, durable=True)
        ends = [
            f"{times:.1f} times the rate of {other.title} ({other.setting}), the fastest {words}"
            for other, words in ((best, "peer"), (best_durable, "peer that is as durable"))
            if other is not None and (words == "peer" or other is not best)
            for times in [ratio(ours, other)]
            if times is not None
        ]
        if ends:
            lines.append(f"{ours.title} ({ours.setting}): {'; '.join(ends)}.")
    return lines


def save(findings: Findings, folder: Path = RESULTS) -> None:
    folder.mkdir(exist_ok=True)
    facts = {"about": findings.about, "rows": [asdict(row) for row in findings.rows]}
    (folder / "peers.json").write_text(json.dumps(facts, indent=1) + "\n")
    (folder / "peers.md").write_text("# Accoda beside its peers\n\n" + text(findings))
    (folder / "peers.svg").write_text(chart(findings))


def chart(findings: Findings) -> str:
    """Bars, a group for each storage; one drawing for light and dark pages."""
    parts = []
    top = 46
    for storage in findings.storages:
        rows = findings.of(storage)
        best = fastest_peer(rows)
        parts.append(f'<text x="10" y="{top + 12}" font-weight="600">{escape(findings.about[storage])}</text>')
        top += 22
        for row in rows:
            kind = "ours" if row.ours else "raw"
            width = max(2, 315 * row.rate / rows[0].rate)
            parts.append(f'<text class="small" x="10" y="{top + 11}">{escape(row.label)}</text>')
            parts.append(f'<rect class="{kind}" x="225" y="{top}" width="{width:.0f}" height="13" rx="2"/>')
            parts.append(f'<text class="small" x="550" y="{top + 11}">{row.rate:,.0f}/s, {_times(row, best)}</text>')
            top += 19
        top += 12
    heading = "Jobs drained a second by one worker process, and that rate over the fastest peer's"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {top}" role="img">'
        f"<title>{heading}</title><style>{STYLE}</style>"
        f'<text x="10" y="18" font-weight="600">{heading}</text>'
        '<rect class="ours" x="10" y="27" width="9" height="9" rx="2"/><text class="small" x="24" y="36">Accoda</text>'
        '<rect class="raw" x="80" y="27" width="9" height="9" rx="2"/>'
        '<text class="small" x="94" y="36">other queues for Python, on the same server, in the same run</text>'
        + "".join(parts)
        + "</svg>\n"
    )


def _cells(row: Row, best: Row | None) -> tuple[str, ...]:
    low, high = min(row.known), max(row.known)
    return (
        f"**{row.title}** {row.version}" if row.ours else f"{row.title} {row.version}",
        row.setting,
        f"{row.rate:,.0f}",
        f"{low:,.0f}",
        f"{high:,.0f}",
        _times(row, best),
        f"{row.jobs:,}",
    )


def _times(row: Row, best: Row | None) -> str:
    times = ratio(row, best) if best is not None else None
    return "" if times is None else f"{times:.2f} ×" if times < 10 else f"{times:.1f} ×"
