"""What Accoda promises to reach beside its peers, and whether this run shows it. Computed, never typed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.findings import NAMES, Entry, Section, best, ratio

Value = Callable[[Entry], float | None]


@dataclass(frozen=True)
class Line:
    """A demand, what was found, against which peer, and whether that is enough; None where nothing was measured."""

    demand: str
    found: str
    against: str
    met: bool | None

    @property
    def word(self) -> str:
        return "not measured" if self.met is None else "met" if self.met else "not met"


def verdict(sections: Mapping[str, Section]) -> list[Line]:
    """A line for each demand, in the order in which they are made."""
    return [
        *(line for section in sections.values() if section.storage in LEAST for line in drains(section)),
        *(share(section) for section in sections.values()),
        *(line for section in sections.values() if section.storage == "redis" for line in enqueues(section)),
        *(line for section in sections.values() for line in latencies(section)),
        *(line for section in sections.values() for line in lates(section)),
        *(line for section in sections.values() if section.storage == "redis" for line in sizes(section)),
    ]


def ours(section: Section, value: Value, *, lowest: bool = False) -> Entry | None:
    """Accoda in the setting that is best at it, of those that lose nothing."""
    return best([e for e in section.entries if e.ours and e.safe and e.durable], value, lowest=lowest)


def name_of(entry: Entry, figure: str) -> str:
    kind = "" if entry.ours or entry.ceiling else ", safe" if entry.safe else ", not safe"
    return f"{entry.title} ({entry.setting}{kind}): {figure}"


def rate_of(measure: str) -> Value:
    return lambda entry: entry.rate(measure)


def _figure(entry: Entry, measure: str) -> str:
    return f"{entry.rate(measure) or 0:,.0f}/s"


# ---- 1: drains


LEAST = {"redis": 8.0, "postgres": 3.0, "sqlite": 20.0}
LEAST_BULLMQ = 5.0
LEAST_SHARE = 0.45


def drains(section: Section) -> Iterator[Line]:
    peers = [entry for entry in section.entries if entry.is_peer and entry.python and entry.durable]
    rivals, at_least = f"the fastest Python peer{_as_durable(section)}", LEAST[section.storage]
    yield times(section, f"{rivals}, any setting", at_least, peers)
    safe = [entry for entry in peers if entry.safe]
    yield times(section, f"{rivals}, and survives kill -9", at_least, safe)
    shared = [entry for entry in safe if entry.rate("drain2") is not None]
    if len(shared) < len(safe):
        yield times(section, f"{rivals}, survives kill -9, and serves more than one worker", at_least, shared)
    if section.storage != "redis":
        return
    for entry in [e for e in section.entries if e.is_peer and not e.python]:
        yield times(section, f"{entry.title}, {entry.setting}", LEAST_BULLMQ, [entry])


def _as_durable(section: Section) -> str:
    """On SQLite some settings lose the last commits in a power cut; on the others the server decides, for all alike."""
    return " that is as durable" if section.storage == "sqlite" else ""


def times(section: Section, rivals: str, at_least: float, peers: Sequence[Entry]) -> Line:
    """Accoda's drain over the fastest of these."""
    demand = f"Drain on {section.title}, one process: at least {at_least:g} × {rivals}"
    return compare(section, demand, at_least, ("drain1", "drain1"), peers)


def share(section: Section) -> Line:
    demand = f"Drain on {section.title}: at least {LEAST_SHARE:.0%} of the bare engine"
    mine = ours(section, rate_of("drain1"))
    raw = next((entry for entry in section.entries if entry.ceiling), None)
    part = ratio(mine.of("drain1"), raw.of("drain1")) if mine and raw else None
    if mine is None or raw is None or part is None:
        return Line(demand, "", "", None)
    return Line(demand, f"{part:.0%}", name_of(raw, _figure(raw, "drain1")), part >= LEAST_SHARE)


# ---- 2: enqueues


def enqueues(section: Section) -> Iterator[Line]:
    peers = [entry for entry in section.entries if entry.is_peer and entry.python]
    where = f"Enqueue on {section.title}"
    fastest = "the fastest Python peer"
    yield compare(section, f"{where}, one by one: no slower than {fastest}", 1.0, ("enqueue", "enqueue"), peers)
    yield compare(
        section, f"{where}, 100 callers: at least 10 × {fastest}, one by one", 10.0, ("callers", "enqueue"), peers
    )
    yield compare(section, f"{where}, in bulk: at least 10 × {fastest}'s bulk", 10.0, ("bulk", "bulk"), peers)


def compare(
    section: Section, demand: str, at_least: float, measures: tuple[str, str], peers: Sequence[Entry]
) -> Line:  # fmt: skip
    """Accoda's rate at the first measure over the best peer's at the second."""
    mine, theirs = ours(section, rate_of(measures[0])), best(peers, rate_of(measures[1]))
    found = ratio(mine.of(measures[0]), theirs.of(measures[1])) if mine and theirs else None
    if mine is None or theirs is None or found is None:
        return Line(demand, "", "", None)
    figure = f"{found:.2f} ×" if found < 10 else f"{found:.1f} ×"
    return Line(
        demand,
        f"{figure} ({_figure(mine, measures[0])})",
        name_of(theirs, _figure(theirs, measures[1])),
        found >= at_least,
    )


# ---- 3: latency and lateness


MOST_LATENCY = 1.5  # times the bare engine's
MOST_LATENESS = 0.003


def latencies(section: Section) -> Iterator[Line]:
    """The median, beside the bare engine's and the best peer's."""

    def middle(entry: Entry) -> float | None:
        return entry.late("latency", 0.5)

    yield beside_the_bare_engine(section, middle)
    yield from lower(section, f"Idle latency on {section.title}, median: no worse than the best", middle, equal=True)


def lates(section: Section) -> Iterator[Line]:
    where = f"Delayed jobs on {section.title}"
    yield from limited(section, f"{where}, median lateness", lambda e: e.late("delayed", 0.5), MOST_LATENESS)
    last: Value = lambda entry: entry.late("delayed", 0.99)  # noqa: E731
    yield from lower(section, f"{where}, 99th percentile: better than the best", last, equal=False)


def beside_the_bare_engine(section: Section, value: Value) -> Line:
    demand = f"Idle latency on {section.title}, median: at most {MOST_LATENCY:g} × the bare engine's"
    mine = ours(section, value, lowest=True)
    raw = next((entry for entry in section.entries if entry.ceiling), None)
    found, floor = value(mine) if mine else None, value(raw) if raw else None
    if mine is None or raw is None or not found or not floor:
        return Line(demand, "", "", None)
    figure = f"{found / floor:.2f} × ({found * 1e3:.2f} ms, {mine.setting})"
    return Line(demand, figure, name_of(raw, f"{floor * 1e3:.2f} ms"), found <= floor * MOST_LATENCY)


def limited(section: Section, what: str, value: Value, most: float) -> Iterator[Line]:
    mine = ours(section, value, lowest=True)
    found = value(mine) if mine else None
    demand = f"{what}: under {most * 1e3:g} ms"
    if found is None or mine is None:
        yield Line(demand, "", "", None)
    else:
        yield Line(demand, f"{found * 1e3:.2f} ms", mine.setting, found < most)


def lower(section: Section, demand: str, value: Value, *, equal: bool) -> Iterator[Line]:
    """Accoda's value is below that of every peer that is as durable: of those that survive kill -9, and of all."""
    peers = [entry for entry in section.entries if entry.is_peer and entry.durable]
    safe = [entry for entry in peers if entry.safe]
    for which, rivals in ((" that survives kill -9", safe), (", any setting", peers)):
        if rivals:
            yield below(section, f"{demand} peer's{_as_durable(section)}{which}", value, rivals, equal)


def below(section: Section, demand: str, value: Value, rivals: Sequence[Entry], equal: bool) -> Line:
    mine, rival = ours(section, value, lowest=True), best(rivals, value, lowest=True)
    found, other = value(mine) if mine else None, value(rival) if rival else None
    if rival is None or found is None or other is None:
        return Line(demand, "", "", None)
    met = found <= other if equal else found < other
    return Line(demand, f"{found * 1e3:.2f} ms", name_of(rival, f"{other * 1e3:.2f} ms"), met)


# ---- 4: bytes


MOST_BYTES = 200


def sizes(section: Section) -> Iterator[Line]:
    value: Value = lambda entry: entry.middle("bytes", "bytes")  # noqa: E731
    mine = ours(section, value, lowest=True)
    found = value(mine) if mine else None
    demand = f"A waiting job in {NAMES[section.storage]}: at most {MOST_BYTES} bytes"
    if found is None:
        yield Line(demand, "", "", None)
    else:
        yield Line(demand, f"{found:.0f} bytes", "", found <= MOST_BYTES)
