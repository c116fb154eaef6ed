"""The findings as Markdown that can be read in a terminal, too: four tables for each storage, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.peers import drawing
from benchmarks.peers.findings import Entry, Measured, Section, best, keep, ratio
from benchmarks.peers.verdict import verdict

Cells = Sequence[str]
WIDE = 60  # letters of a reason in a table; the whole of it stands below


def text(sections: Mapping[str, Section]) -> str:
    """The whole report."""
    parts = ["Rates are jobs a second: the median of the rounds, in which all took turns, and the lowest and highest."]
    for section in sections.values():
        parts += of_section(section)
    parts += ["## The verdict", verdict_table(sections)]
    return "\n\n".join(parts) + "\n"


def save(folder: Path, sections: Mapping[str, Section]) -> None:
    """peers.json, peers.md and the charts."""
    keep(folder / "peers.json", dict(sections))
    write(folder, sections)


def write(folder: Path, sections: Mapping[str, Section]) -> None:
    """All that follows from peers.json."""
    charts = "".join(f"{picture(name)}\n\n" for name in drawing.draw(folder, sections))
    (folder / "peers.md").write_text(f"# Accoda beside its peers\n\n{charts}{text(sections)}")


def picture(name: str) -> str:
    """A chart in the colours of the page."""
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="peers-{name}-dark.svg">'
        f'<img alt="{name}" src="peers-{name}-light.svg"></picture>'
    )


def of_section(section: Section) -> list[str]:
    here = [f"## {section.title}", f"{section.about}. {section.machine} {section.date}."]
    peers = sorted(section.entries, key=lambda entry: -(entry.rate("drain1") or 0))

    def those_with(*measures: str) -> list[Entry]:
        return [entry for entry in peers if entry.has(*measures)]

    drained = those_with("drain1", "drain2")
    here += ["### Drain: no-op jobs, one and two worker processes", drain_table(section, drained)]
    here += [line for line in [shares(section)] if line]
    here += ["### Enqueue", table(3, ENQUEUE, [_enqueue(entry) for entry in those_with("enqueue", "callers", "bulk")])]
    late = [_late(entry) for entry in those_with("latency", "delayed")]
    here += ["### Idle latency, and lateness of delayed jobs, in ms", table(3, LATE, late)]
    here += ["### What a job costs", table(3, COSTS, [_costs(entry) for entry in peers])]
    return here + notes(section)


# ---- tables


def table(left: int, headings: Cells, lines: Sequence[Cells]) -> str:
    """A Markdown table whose columns also line up in a terminal; the first `left` are text."""
    widths = [max(len(line[place]) for line in [headings, *lines]) for place in range(len(headings))]

    def line(cells: Cells) -> str:
        aligned = [str.ljust if place < left else str.rjust for place in range(len(cells))]
        return "| " + " | ".join(align(cell, w) for align, cell, w in zip(aligned, cells, widths, strict=True)) + " |"

    rule = ["-" * w if place < left else "-" * (w - 1) + ":" for place, w in enumerate(widths)]
    return "\n".join([line(headings), line(rule), *map(line, lines)])


def _head(entry: Entry) -> tuple[str, str, str]:
    name = f"**{entry.title}**" if entry.ours else entry.title
    if entry.ceiling:
        return f"*{entry.title}*", entry.setting, "yes"
    kind = "yes" if entry.safe else "no"
    return f"{name} {entry.version}".strip(), entry.setting, kind + ("" if entry.durable else ", not durable")


def _cell(measured: Measured, values: Sequence[float], show: Callable[[Sequence[float]], str]) -> str:
    """The numbers, or why there are none."""
    if values:
        return show(values)
    absent = measured.absent
    return absent if len(absent) <= WIDE else absent[: WIDE - 1] + "…"


def _spread(digits: int = 0) -> Callable[[Sequence[float]], str]:
    def show(values: Sequence[float]) -> str:
        ordered = sorted(values)
        middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        if len(ordered) == 1:
            return f"{middle:,.{digits}f}"
        return f"{middle:,.{digits}f} ({ordered[0]:,.{digits}f} to {ordered[-1]:,.{digits}f})"

    return show


def _rate(entry: Entry, measure: str) -> str:
    return _cell(entry.of(measure), entry.of(measure).known("rate"), _spread())


def _middle(entry: Entry, measure: str, what: str, unit: float = 1.0, digits: int = 1) -> str:
    value = entry.middle(measure, what)
    return "" if value is None else f"{value / unit:,.{digits}f}"


DRAIN = ("queue", "setting", "survives kill -9", "one process", "two processes", "two to one", "to the fastest peer")


def drain_table(section: Section, entries: Sequence[Entry]) -> str:
    fastest = best([e for e in entries if e.is_peer and e.python], lambda entry: entry.rate("drain1"))
    return table(3, DRAIN, [_drain(entry, fastest) for entry in entries])


def _drain(entry: Entry, fastest: Entry | None) -> Cells:
    two = ratio(entry.of("drain2"), entry.of("drain1"))
    times = ratio(entry.of("drain1"), fastest.of("drain1")) if fastest else None
    second = "" if entry.ceiling else _rate(entry, "drain2")
    return (*_head(entry), _rate(entry, "drain1"), second, _times(two), _times(times))


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} ×" if value < 10 else f"{value:.1f} ×"


ENQUEUE = ("queue", "setting", "survives kill -9", "one by one", "concurrent callers", "callers", "in bulk")


def _enqueue(entry: Entry) -> Cells:
    crowd = next((each["callers"] for each in entry.of("callers").rounds if each), "")
    return (*_head(entry), _rate(entry, "enqueue"), _rate(entry, "callers"), crowd, _rate(entry, "bulk"))


LATE = (
    "queue", "setting", "survives kill -9",
    "latency, median", "99th", "delayed: late, median", "99th", "earliest, if early",
)  # fmt: skip


def _late(entry: Entry) -> Cells:
    cells: list[str] = []
    for measure in ("latency", "delayed"):
        found = entry.of(measure)
        middle, last = entry.late(measure, 0.5), entry.late(measure, 0.99)
        absent = _cell(found, [], _spread()) if middle is None and not entry.ceiling else ""
        cells += (absent or _ms(middle), _ms(last))
    early = [value for value in entry.of("delayed").late() if value < 0]
    return (*_head(entry), *cells, _ms(min(early)) if early else "")


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:,.2f}" if abs(seconds) < 0.1 else f"{seconds * 1e3:,.0f}"


COSTS = (
    "queue", "setting", "survives kill -9", "bytes stored",
    "enqueue: client µs", "server µs", "bulk: client µs", "server µs", "drain: client µs", "server µs", "worker MB",
)  # fmt: skip


def _costs(entry: Entry) -> Cells:
    cells = [_cell(entry.of("bytes"), entry.of("bytes").known("bytes"), _spread())] if entry.has("bytes") else [""]
    for measure in ("enqueue", "bulk", "drain1"):
        cells += (_middle(entry, measure, "client"), _middle(entry, measure, "server"))
    return (*_head(entry), *cells, _middle(entry, "drain1", "memory", 1e6, 0))


# ---- sentences


def shares(section: Section) -> str:
    """How much of the bare engine Accoda is, in the rounds of the same run."""
    raw = next((entry for entry in section.entries if entry.ceiling), None)
    if raw is None:
        return ""
    found = [(entry, ratio(entry.of("drain1"), raw.of("drain1"))) for entry in section.entries if entry.ours]
    words = [f"{part:.0%} ({entry.setting})" for entry, part in found if part is not None]
    said = [f"Accoda's share of the bare engine: {', '.join(words)}."] if words else []
    floor = raw.late("latency", 0.5)
    lates = [(entry, entry.late("latency", 0.5)) for entry in section.entries if entry.ours]
    words = [f"{late / floor:.2f} × ({entry.setting})" for entry, late in lates if floor and late is not None]
    if words:
        said.append(f"Its idle latency, median, to the bare engine's: {', '.join(words)}.")
    return " ".join(said)


def notes(section: Section) -> list[str]:
    """What is lost in which setting, and why something has no number."""
    loses = [f"- {section.label(entry)}: loses {entry.loses}" for entry in section.entries if entry.loses]
    failed = [
        f"- {section.label(entry)}, {measure}: {found.failed}"
        for entry in section.entries
        for measure, found in entry.measures.items()
        if found.failed
    ]
    parts = []
    if loses:
        parts += ["### What is lost", "\n".join(loses)]
    if failed:
        parts += ["### Failed", "\n".join(failed)]
    return parts


def verdict_table(sections: Mapping[str, Section]) -> str:
    lines = [(line.demand, line.word, line.found, line.against) for line in verdict(sections)]
    return table(4, ("demand", "verdict", "found", "against"), lines)
