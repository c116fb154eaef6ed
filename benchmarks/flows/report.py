"""The findings as Markdown that can be read in a terminal, too, and a chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.charts import Bar, Group, Theme, bars
from benchmarks.charts import save as save_chart
from benchmarks.flows.measures import WORDS
from benchmarks.flows.verdict import verdict
from benchmarks.mixed.report import machine, rows
from benchmarks.peers.findings import Entry, Section, keep
from benchmarks.peers.report import table

CHART = "flows"
PICTURE = (
    f'<picture><source media="(prefers-color-scheme: dark)" srcset="{CHART}-dark.svg">'
    f'<img alt="Jobs of a fan a second" src="{CHART}-light.svg"></picture>'
)
Row = tuple[Section, Entry]
Show = Callable[[float], str]


def save(folder: Path, sections: Sequence[Section]) -> None:
    """flows.json, flows.md and the chart."""
    keep(folder / "flows.json", {section.storage: section for section in sections})
    save_chart(folder, CHART, partial(draw, sections))
    (folder / "flows.md").write_text(f"# Flows\n\n{PICTURE}\n\n{text(sections)}")


def text(sections: Sequence[Section]) -> str:
    """The whole report."""
    parts = [machine(sections)]
    for measure, (heading, make) in TABLES.items():
        if found := rows(sections, (measure,)):
            parts += [f"## {heading}", make(found)]
    noted = list(notes(sections))
    if noted:
        parts += ["## Notes", "\n".join(noted)]
    lines = [(line.demand, line.word, line.found, line.against) for line in verdict(sections)]
    parts += ["## The verdict", table(4, ("demand", "verdict", "found", "against"), lines)]
    return "\n\n".join(parts) + "\n"


# ---- tables


def fan_table(found: Sequence[Row]) -> str:
    headings = ("queue", "storage", "setting", "members", "start to join", "jobs/s", "lowest to highest", "start alone")
    lines = []
    for section, entry in sorted(found, key=lambda row: -(row[1].rate("fan") or 0)):
        known = entry.of("fan").known("rate")
        extent = f"{min(known):,.0f} to {max(known):,.0f}" if known else ""
        cells = [_cell(entry, "fan", "seconds", _milliseconds), _cell(entry, "fan", "rate", _count), extent]
        members = _cell(entry, "fan", "members", _count)
        head = (*_head(section, entry), entry.setting)
        lines.append((*head, members, *cells, _cell(entry, "fan", "start", _milliseconds)))
    return f"The median of the rounds.\n\n{table(3, headings, lines)}"


COUNTED = ("flows", "kills", "joined", "early", "twice", "never", "missing", "repeated")


def kills_table(found: Sequence[Row]) -> str:
    headings = (
        "queue", "storage", "setting", "flows", "kills", "joins fired", "early", "twice", "never",
        "members not done", "members run more than once", "last join after the last kill",
    )  # fmt: skip
    lines = []
    for section, entry in found:
        cells = [_cell(entry, "kills", what, _count) for what in COUNTED]
        late = entry.middle("kills", "seconds")
        lines.append((*_head(section, entry), entry.setting, *cells, "" if late is None else _seconds(late)))
    return table(3, headings, lines)


def wide_table(found: Sequence[Row]) -> str:
    headings = ("storage", "nodes", "start", "start to join", "jobs/s", "`app.flows.get`", "peak memory of the worker")
    what: list[tuple[str, Show]] = [
        ("nodes", _count), ("start", _milliseconds), ("seconds", _seconds), ("rate", _count), ("get", _milliseconds),
        ("memory", _megabytes),
    ]  # fmt: skip
    return _ours(headings, found, "wide", what)


def many_table(found: Sequence[Row]) -> str:
    headings = ("storage", "flows", "flows started/s", "flows run/s", "jobs/s", "seconds", "peak memory of the worker")
    what: list[tuple[str, Show]] = [
        ("flows", _count), ("started", _count), ("rate", _count), ("jobs", _count), ("seconds", _seconds),
        ("memory", _megabytes),
    ]  # fmt: skip
    return _ours(headings, found, "many", what)


def _ours(headings: Sequence[str], found: Sequence[Row], measure: str, what: Sequence[tuple[str, Show]]) -> str:
    lines = [(s.title, *(_cell(entry, measure, name, show) for name, show in what)) for s, entry in found]
    return table(1, headings, lines)


TABLES: dict[str, tuple[str, Callable[[Sequence[Row]], str]]] = {
    "fan": ("A fan and its join", fan_table),
    "kills": ("The same under kills", kills_table),
    "wide": ("Accoda: one large flow", wide_table),
    "many": ("Accoda: many flows of ten nodes", many_table),
}


def _head(section: Section, entry: Entry) -> tuple[str, str]:
    name = f"**{entry.title}**" if entry.ours else entry.title
    return f"{name} {entry.version}".strip(), section.title


def _cell(entry: Entry, measure: str, what: str, show: Show) -> str:
    value = entry.middle(measure, what)
    if value is not None:
        return show(value)
    return "failed" if entry.of(measure).failed else "not measured"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _milliseconds(value: float) -> str:
    return f"{value * 1e3:,.0f} ms"


def _megabytes(value: float) -> str:
    return f"{value / 1e6:.0f} MB"


def notes(sections: Sequence[Section]) -> Iterator[str]:
    """Why something has no number, what a setting loses, and joins that were run again."""
    for section in sections:
        for entry in section.entries:
            if entry.loses:
                yield f"- {entry.title} on {section.title} ({entry.setting}) loses {entry.loses}"
            for measure, found in entry.measures.items():
                what = f"- {entry.title} on {section.title}, {WORDS[measure]}:"
                if found.failed:
                    yield f"{what} failed: {found.failed}"
                if again := sum(found.known("again")):
                    yield f"{what} {again:.0f} of the joins that ran twice are one job that was run again after a kill"


# ---- the chart


def draw(sections: Sequence[Section], theme: Theme) -> str:
    groups = [
        Group("Jobs a second", _rates(sections)),
        Group("Joins that did not fire once, under kills", _wrong(sections)),
    ]
    note = "A fan of no-op jobs and its join, one worker process. The median of the rounds; the lighter part: the best."
    legend = {"ours": "Accoda", "other": "other queues"}
    drawn = [group for group in groups if group.bars]
    return bars("Flows", drawn, note=note, legend=legend, how="range", theme=theme)


def _rates(sections: Sequence[Section]) -> list[Bar]:
    """The fastest first."""
    known = [(rate, s, e) for s, e in rows(sections, ("fan",)) if (rate := e.rate("fan")) is not None]
    return [
        Bar(_label(s, e), [rate, max(e.of("fan").known("rate"))], f"{rate:,.0f}", _kind(e))
        for rate, s, e in sorted(known, key=lambda each: -each[0])
    ]


def _wrong(sections: Sequence[Section]) -> list[Bar]:
    """Early, twice or never, of how many; the fewest first."""
    found = []
    for section, entry in rows(sections, ("kills",)):
        flows = sum(entry.of("kills").known("flows"))
        if flows:
            wrong = sum(sum(entry.of("kills").known(what)) for what in ("early", "twice", "never"))
            found.append((wrong, Bar(_label(section, entry), [wrong], f"{wrong:.0f} of {flows:.0f}", _kind(entry))))
    return [bar for _, bar in sorted(found, key=lambda each: each[0])]


def _label(section: Section, entry: Entry) -> str:
    first = [] if entry.ours else entry.setting.split(", ")[1:2]
    return ", ".join([f"{entry.title} on {section.title}", *first])


def _kind(entry: Entry) -> str:
    return "ours" if entry.ours else "other"
