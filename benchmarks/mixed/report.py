"""The findings as Markdown that can be read in a terminal, too, and a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.charts import Bar, Group, Theme, bars
from benchmarks.charts import save as save_chart
from benchmarks.mixed.catalogue import MIXED, TYPED
from benchmarks.mixed.measures import WORDS
from benchmarks.mixed.verdict import verdict
from benchmarks.peers.findings import Entry, Section, keep, ratio
from benchmarks.peers.report import table

CHART = "mixed"
PICTURE = (
    f'<picture><source media="(prefers-color-scheme: dark)" srcset="{CHART}-dark.svg">'
    f'<img alt="Share of the ideal" src="{CHART}-light.svg"></picture>'
)
SLOTS = {"async-10": 10, "async-50": 50, "def-10": 10, "def-50": 50}
Row = tuple[Section, Entry]


def save(folder: Path, sections: Sequence[Section]) -> None:
    """mixed.json, mixed.md and the chart."""
    keep(folder / "mixed.json", {section.storage: section for section in sections})
    save_chart(folder, CHART, partial(draw, sections))
    (folder / "mixed.md").write_text(f"# Mixed work\n\n{PICTURE}\n\n{text(sections)}")


def text(sections: Sequence[Section]) -> str:
    """The whole report."""
    parts = [machine(sections)]
    if rows(sections, MIXED):
        parts += ["## Most jobs of 20 ms, one in twenty of a second", mixed_table(sections)]
    if rows(sections, ("slow", "nine")):
        parts += ["## A slow job and its neighbours", slow_table(sections)]
    if rows(sections, ("busy",)):
        parts += ["## Jobs that keep a processor busy", busy_table(sections)]
    if rows(sections, TYPED):
        parts += ["## Types in one queue", typed_table(sections)]
    noted = list(notes(sections))
    if noted:
        parts += ["## Notes", "\n".join(noted)]
    lines = [(line.demand, line.word, line.found, line.against) for line in verdict(sections)]
    parts += ["## The verdict", table(4, ("demand", "verdict", "found", "against"), lines)]
    return "\n\n".join(parts) + "\n"


def machine(sections: Sequence[Section]) -> str:
    if not sections:
        return "Nothing was measured."
    about = ". ".join(section.about for section in sections)
    return f"{about}. {sections[0].machine} {sections[0].date}."


# ---- tables


def rows(sections: Sequence[Section], measures: Sequence[str]) -> list[Row]:
    """The entries that were measured at one of these; Accoda first."""
    found = [(section, entry) for section in sections for entry in section.entries if entry.has(*measures)]
    return sorted(found, key=lambda row: not row[1].ours)


def mixed_table(sections: Sequence[Section]) -> str:
    headings = ("queue", "storage", "setting", *(WORDS[measure] for measure in MIXED))
    lines = [
        (*_head(section, entry), entry.setting, *(_share(entry, measure) for measure in MIXED))
        for section, entry in rows(sections, MIXED)
    ]
    intro = "Share of the ideal: the median of the rounds, and the best."
    return f"{intro}\n\n{table(3, headings, lines)}"


def slow_table(sections: Sequence[Section]) -> str:
    headings = ("queue", "storage", "beside a slow job", "nine slots without it", "ratio", "ideal of nine slots")
    lines = []
    for section, entry in rows(sections, ("slow", "nine")):
        times = ratio(entry.of("slow"), entry.of("nine"), "seconds")
        seconds = [_seconds(entry, measure, "seconds") for measure in ("slow", "nine")]
        lines.append((*_head(section, entry), *seconds, _times(times), _seconds(entry, "slow", "ideal")))
    return table(2, headings, lines)


def busy_table(sections: Sequence[Section]) -> str:
    headings = ("queue", "storage", "share of two cores", "seconds", "bare loop on two cores")
    lines = [
        (*_head(section, entry), _share(entry, "busy"), *(_seconds(entry, "busy", w) for w in ("seconds", "ideal")))
        for section, entry in rows(sections, ("busy",))
    ]
    return table(2, headings, lines)


def typed_table(sections: Sequence[Section]) -> str:
    headings = ("queue", "storage", "no types: jobs/s", "one type", "ratio", "five types", "ratio")
    lines = []
    for section, entry in rows(sections, TYPED):
        cells = [_rate(entry, "untyped")]
        for measure in ("one-type", "five-types"):
            times = ratio(entry.of(measure), entry.of("untyped"))
            cells += [_rate(entry, measure), "" if times is None else f"{times:.0%}"]
        lines.append((*_head(section, entry), *cells))
    return table(2, headings, lines)


def _head(section: Section, entry: Entry) -> tuple[str, str]:
    name = f"**{entry.title}**" if entry.ours else entry.title
    return f"{name} {entry.version}".strip(), section.title


def _share(entry: Entry, measure: str) -> str:
    known = entry.of(measure).known("share")
    middle = entry.middle(measure, "share")
    return _absent(entry, measure) if middle is None else f"{middle:.0%} ({max(known):.0%})"


def _absent(entry: Entry, measure: str) -> str:
    if not entry.has(measure):
        return "none"
    return "failed" if entry.of(measure).failed else "not measured"


def _seconds(entry: Entry, measure: str, what: str) -> str:
    value = entry.middle(measure, what)
    return _absent(entry, measure) if value is None else f"{value:.2f} s"


def _rate(entry: Entry, measure: str) -> str:
    value = entry.middle(measure, "rate")
    return _absent(entry, measure) if value is None else f"{value:,.0f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} ×"


def notes(sections: Sequence[Section]) -> Iterator[str]:
    """Why something has no number, who ran more at once than its slots, and who ran jobs twice."""
    for section in sections:
        for entry in section.entries:
            for measure, found in entry.measures.items():
                what = f"- {entry.title} on {section.title}, {WORDS[measure]}:"
                if found.failed:
                    yield f"{what} failed: {found.failed}"
                most = max(found.known("most"), default=0)
                if measure in SLOTS and most > SLOTS[measure]:
                    yield f"{what} up to {most:.0f} jobs ran at once, more than its slots"
                if again := sum(found.known("repeated")):
                    yield f"{what} {again:.0f} jobs ran more than once"


# ---- the chart


def draw(sections: Sequence[Section], theme: Theme) -> str:
    groups = [Group(WORDS[measure], _bars(sections, measure)) for measure in MIXED]
    note = (
        "Share of the best schedule, one worker process; most jobs take 20 ms, one in twenty a second. "
        "The median of the rounds; the lighter part reaches to the best."
    )
    legend = {"ours": "Accoda", "other": "other queues", "ceiling": "the best schedule"}
    drawn = [group for group in groups if group.bars]
    return bars("Share of the ideal, mixed work", drawn, note=note, legend=legend, how="range", theme=theme)


def _bars(sections: Sequence[Section], measure: str) -> list[Bar]:
    """The best first, below the ideal: one scale for all groups."""
    found = [(entry.middle(measure, "share"), section, entry) for section, entry in rows(sections, (measure,))]
    known = sorted(((share, s, e) for share, s, e in found if share is not None), key=lambda each: -each[0])
    drawn = [
        Bar(
            f"{entry.title} on {section.title}",
            [share, max(entry.of(measure).known("share"))],
            f"{share:.0%}",
            "ours" if entry.ours else "other",
        )
        for share, section, entry in known
    ]
    return [Bar("ideal", [1.0], "100%", "ceiling"), *drawn] if drawn else []
