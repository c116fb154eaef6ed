"""What Accoda promises of flows, and whether this run shows it. Computed, never typed in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.flows.measures import MEASURES, WORDS
from benchmarks.peers.findings import Entry, Section, best, ratio
from benchmarks.peers.verdict import Line

LEAST_TIMES = 5.0
WHERE = "redis"


def verdict(sections: Sequence[Section]) -> list[Line]:
    """A line for each demand, in the order in which they are made."""
    return [
        *faster(sections),
        *(joins_once(sections, measure) for measure in MEASURES),
    ]


def faster(sections: Sequence[Section]) -> Iterator[Line]:
    """Accoda on Redis beside the fastest Python peer, on whatever storage; and beside the fastest that loses no job."""
    entries = [entry for section in sections for entry in section.entries if entry.is_peer and entry.python]
    mine = next((e for s in sections if s.storage == WHERE for e in s.entries if e.ours and e.has("fan")), None)
    safe = [entry for entry in entries if entry.safe]
    for rivals, among in (("any setting", entries), ("of those that survive kill -9", safe)):
        demand = f"A fan and its join on Redis: at least {LEAST_TIMES:g} × the fastest Python peer, {rivals}"
        theirs = best(among, lambda entry: entry.rate("fan"))
        found = ratio(mine.of("fan"), theirs.of("fan")) if mine and theirs else None
        if theirs is None or found is None:
            yield Line(demand, "", "", None)
        else:
            against = f"{theirs.title} ({theirs.setting}): {theirs.rate('fan') or 0:,.0f} jobs/s"
            yield Line(demand, f"{found:.2f} ×", against, found >= LEAST_TIMES)


def joins_once(sections: Sequence[Section], measure: str) -> Line:
    """Of Accoda, on all storages and in all rounds."""
    demand = f"Accoda, {WORDS[measure]}: every join fired once, after all its members"
    ours = [entry for section in sections for entry in section.entries if entry.ours and entry.has(measure)]
    if not ours or any(not entry.of(measure).known("joined") for entry in ours):
        return Line(demand, "", "", None)
    flows, wrong = (sum(_sum(entry, measure, *what) for entry in ours) for what in (("flows",), WRONG))
    wrong -= sum(_sum(entry, measure, "again") for entry in ours)
    return Line(demand, f"{wrong:,} wrong of {flows:,}", "", wrong == 0)


WRONG = ("early", "twice", "never")


def _sum(entry: Entry, measure: str, *what: str) -> int:
    return int(sum(value for each in what for value in entry.of(measure).known(each)))
