"""The findings as Markdown that can be read in a terminal, too, and a chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.charts import Bar, Group, Theme, bars
from benchmarks.charts import save as save_chart
from benchmarks.lanes.catalogue import LIMIT as LIMITED
from benchmarks.lanes.catalogue import PARTS, TURNS
from benchmarks.lanes.measures import BATCH, LANE_LIMIT, LIMIT, WORDS
from benchmarks.lanes.verdict import BASE, RATES, verdict
from benchmarks.mixed.report import Row, machine, rows
from benchmarks.peers.findings import Entry, Section, keep, ratio
from benchmarks.peers.report import table

CHART = "lanes"
PICTURE = (
    f'<picture><source media="(prefers-color-scheme: dark)" srcset="{CHART}-dark.svg">'
    f'<img alt="Rates with lanes, and the use of a limit" src="{CHART}-light.svg"></picture>'
)
ELSEWHERE = (
    "- Not measured: Hatchet limits the runs of each key, and needs the image of its server; the groups of BullMQ Pro "
    "need a paid registry",
    "- Celery, RQ, SAQ, arq, taskiq, streaq and Chancy have no limit for each key",
    "- DBOS polls, partition after partition, in a random order: so no customer waits for all jobs of another",
    "- PgQueuer's `concurrency_limit` belongs to an entrypoint, so the customers have to be known in the code",
    "- Procrastinate's `lock` lets one job run at a time, in the order of the queue: a customer has two locks here",
    "- Dramatiq's limiter does not hold a job back: one that finds it full raises, and is enqueued again after a "
    "backoff, behind all others: 15 s and more by default, shortened here; Huey's lock and semaphore raise too",
)


def save(folder: Path, sections: Sequence[Section]) -> None:
    """lanes.json, lanes.md and the chart."""
    keep(folder / "lanes.json", {section.storage: section for section in sections})
    save_chart(folder, CHART, partial(draw, sections))
    (folder / "lanes.md").write_text(f"# Lanes\n\n{PICTURE}\n\n{text(sections)}")


def text(sections: Sequence[Section]) -> str:
    """The whole report."""
    parts = [machine(sections)]
    if found := rows(sections, PARTS["rates"]):
        parts += ["## What lanes cost", *(rates_table(found, what) for what in RATES)]
    if found := rows(sections, TURNS):
        parts += ["## Fifty customers behind one with many jobs", turns_table(found)]
    if found := rows(sections, LIMITED):
        parts += ["## At most two at once of each customer", limit_table(found)]
    if noted := list(notes(sections)):
        parts += ["## Notes", "\n".join(noted)]
    lines = [(line.demand, line.word, line.found, line.against) for line in verdict(sections)]
    parts += ["## The verdict", table(4, ("demand", "verdict", "found", "against"), lines)]
    return "\n\n".join(parts) + "\n"


# ---- tables


def rates_table(found: Sequence[Row], what: str) -> str:
    """Rates, and the ratio to the same number of jobs without lanes."""
    headings = ["storage"]
    for measure in PARTS["rates"]:
        headings += [WORDS[measure], "ratio"] if measure in BASE else [f"{WORDS[measure]}: jobs/s"]
    lines = []
    for section, entry in found:
        cells = [section.title]
        for measure in PARTS["rates"]:
            cells.append(cell(entry, measure, what, _count))
            if measure in BASE:
                times = ratio(entry.of(measure), entry.of(BASE[measure]), what)
                cells.append("" if times is None else f"{times:.0%}")
        lines.append(tuple(cells))
    intro = {
        "rate": f"Drained by one worker, in batches of {BATCH}. Lanes are fair, with a limit of {LANE_LIMIT:,}; that "
        "of the full lane is one batch, so that the worker cannot take the next one ahead.",
        "enqueued": "Enqueued by one caller, 1,000 in a call.",
    }
    return f"{intro[what]} The median of the rounds.\n\n{table(1, headings, lines)}"


def turns_table(found: Sequence[Row]) -> str:
    headings = ("queue", "storage", *(WORDS[measure] for measure in TURNS))
    lines = [(*_head(section, entry), *(_worst(entry, measure) for measure in TURNS)) for section, entry in found]
    sample = next((e.of(m).rounds[0] for _, e in found for m in TURNS if e.of(m).known("within")), None) or {}
    about = f"{sample.get('crowd', 0):,} jobs of one customer, then one of each of {sample.get('others', 0)} others"
    intro = f"{about}: within how many starts those have started, in the worst of the rounds."
    return f"{intro}\n\n{table(2, headings, lines)}"


def limit_table(found: Sequence[Row]) -> str:
    headings = (
        "queue", "storage", "setting", "share of the ideal", "seconds", "ideal", "most at once of a customer",
        "never ran", "ran more than once",
    )  # fmt: skip
    lines = []
    for section, entry in sorted(found, key=lambda row: -(row[1].middle("limit", "share") or 0)):
        most = entry.of("limit").known("most")
        cells = [
            cell(entry, "limit", "share", lambda value: f"{value:.0%}"),
            *(cell(entry, "limit", what, lambda value: f"{value:.1f} s") for what in ("seconds", "ideal")),
            f"{max(most):.0f}" if most else "",
            *(cell(entry, "limit", what, _count) for what in ("never", "repeated")),
        ]
        lines.append((*_head(section, entry), "50 slots" if entry.ours else entry.setting, *cells))
    return f"The median of the rounds; the most of all rounds.\n\n{table(3, headings, lines)}"


def _head(section: Section, entry: Entry) -> tuple[str, str]:
    name = f"**{entry.title}**" if entry.ours else entry.title
    return f"{name} {entry.version}".strip(), section.title


def _worst(entry: Entry, measure: str) -> str:
    known = entry.of(measure).known("within")
    return f"{max(known):,.0f}" if known else absent(entry, measure)


def cell(entry: Entry, measure: str, what: str, show: Callable[[float], str]) -> str:
    value = entry.middle(measure, what)
    return absent(entry, measure) if value is None else show(value)


def absent(entry: Entry, measure: str) -> str:
    if not entry.has(measure):
        return ""
    return "failed" if entry.of(measure).failed else "not measured"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def notes(sections: Sequence[Section]) -> Iterator[str]:
    """Why something has no number, who broke the limit, and what the peers do and do not offer."""
    for section, entry in rows(sections, tuple(WORDS)):
        for measure, found in entry.measures.items():
            what = f"- {entry.title} on {section.title}, {WORDS[measure]}:"
            if found.failed:
                yield f"{what} failed: {found.failed}"
            if (most := max(found.known("most"), default=0)) > LIMIT:
                yield f"{what} up to {most:.0f} jobs of a customer ran at once, more than its limit"
    if rows(sections, LIMITED):
        yield from ELSEWHERE


# ---- the chart


def draw(sections: Sequence[Section], theme: Theme) -> str:
    groups = [
        *(Group(f"Drained with {WORDS[m]}, compared with none", _ratios(sections, m)) for m in BASE),
        Group("A limit of two for each customer: share of the ideal", _shares(sections)),
    ]
    note = (
        "The median of the rounds. One worker process; all compared with the same jobs without lanes in the same run."
    )
    legend = {"ours": "Accoda", "other": "other queues", "ceiling": "no lanes, or the best schedule"}
    drawn = [group for group in groups if group.bars]
    return bars("Lanes", drawn, note=note, legend=legend, how="range", theme=theme)


def _ratios(sections: Sequence[Section], measure: str) -> list[Bar]:
    found = [
        (times, section.title)
        for section, entry in rows(sections, (measure,))
        if (times := ratio(entry.of(measure), entry.of(BASE[measure]))) is not None
    ]
    drawn = [Bar(title, [times, times], f"{times:.0%}", "ours") for times, title in sorted(found, reverse=True)]
    return [Bar("no lanes", [1.0], "100%", "ceiling"), *drawn] if drawn else []


def _shares(sections: Sequence[Section]) -> list[Bar]:
    """The best first, below the ideal."""
    known = [(entry.of("limit").known("share"), s, entry) for s, entry in rows(sections, LIMITED)]
    found = [(entry.middle("limit", "share") or 0.0, max(shares), s, entry) for shares, s, entry in known if shares]
    drawn = [
        Bar(
            f"{entry.title if entry.ours else section.label(entry)} on {section.title}",
            [share, best],
            f"{share:.0%}",
            "ours" if entry.ours else "other",
        )
        for share, best, section, entry in sorted(found, key=lambda each: -each[0])
    ]
    return [Bar("ideal", [1.0], "100%", "ceiling"), *drawn] if drawn else []
