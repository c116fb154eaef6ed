"""What Accoda promises to reach at mixed work, and whether this run shows it. Computed, never typed in.

Each demand holds on every storage: a line tells of the one on which Accoda is furthest from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.mixed.catalogue import MIXED
from benchmarks.mixed.measures import WORDS
from benchmarks.peers.findings import Entry, Section, ratio
from benchmarks.peers.verdict import Line

LEAST_SHARE = 0.85
LEAST_BUSY = 0.85
MOST_BESIDE_SLOW = 1.2
LEAST_TYPED = 0.8

Found = tuple[float, str]  # a value, and of what


def verdict(sections: Sequence[Section]) -> list[Line]:
    """A line for each demand, in the order in which they are made."""
    lines = []
    for measure in MIXED:
        what = WORDS[measure]
        shares = per_storage(sections, measure, _share(measure))
        lines.append(at_least(f"{what}: at least {LEAST_SHARE:.0%} of the ideal", LEAST_SHARE, shares))
        lines.append(ahead(sections, measure))
    busy = per_storage(sections, "busy", _share("busy"))
    lines.append(at_least(f"{WORDS['busy']}: at least {LEAST_BUSY:.0%} of two cores", LEAST_BUSY, busy))
    lines.append(beside_slow(sections))
    for measure in ("one-type", "five-types"):
        rates = per_storage(sections, measure, _rate_to_untyped(measure))
        demand = f"{WORDS[measure]}: drains at least {LEAST_TYPED:.0%} of the rate without types"
        lines.append(at_least(demand, LEAST_TYPED, rates))
    return lines


def at_least(demand: str, least: float, found: Sequence[Found] | None) -> Line:
    if not found:
        return Line(demand, "", "", None)
    value, where = min(found)
    return Line(demand, f"{value:.0%} on {where}", "", value >= least)


def ahead(sections: Sequence[Section], measure: str) -> Line:
    """Beside the peer that comes closest: each round of the one to the same round of the other."""
    demand = f"{WORDS[measure]}: ahead of every peer"
    pairs: list[tuple[float, str, str]] = []
    for section, mine in ours(sections, measure):
        if not mine.of(measure).known("share"):
            return Line(demand, "", "", None)
        for where, theirs in peers(sections, measure):
            times = ratio(mine.of(measure), theirs.of(measure), "share")
            if times is not None:
                share = theirs.middle(measure, "share")
                pairs.append((times, section.title, f"{theirs.title} on {where.title}: {share:.0%}"))
    if not pairs:
        return Line(demand, "", "", None)
    times, where_mine, rival = min(pairs)
    return Line(demand, f"{times:.2f} × on {where_mine}", rival, times > 1.0)


def beside_slow(sections: Sequence[Section]) -> Line:
    demand = f"a slow job and its neighbours: at most {MOST_BESIDE_SLOW:g} × what nine slots need without it"

    def times(entry: Entry) -> float | None:
        return ratio(entry.of("slow"), entry.of("nine"), "seconds")

    found = per_storage(sections, "slow", times)
    if not found:
        return Line(demand, "", "", None)
    value, where = max(found)
    return Line(demand, f"{value:.2f} × on {where}", "", value <= MOST_BESIDE_SLOW)


# ---- where the values are


def ours(sections: Sequence[Section], measure: str) -> Iterator[tuple[Section, Entry]]:
    return ((each, entry) for each in sections for entry in each.entries if entry.ours and entry.has(measure))


def peers(sections: Sequence[Section], measure: str) -> Iterator[tuple[Section, Entry]]:
    return ((each, entry) for each in sections for entry in each.entries if entry.is_peer and entry.has(measure))


def per_storage(
    sections: Sequence[Section], measure: str, value: Callable[[Entry], float | None]
) -> list[Found] | None:  # fmt: skip
    """Accoda's value on each storage; None if one of them has none, since the demand holds on all."""
    found = [(value(entry), section.title) for section, entry in ours(sections, measure)]
    known = [(number, where) for number, where in found if number is not None]
    return known if len(known) == len(found) else None


def _share(measure: str) -> Callable[[Entry], float | None]:
    return lambda entry: entry.middle(measure, "share")


def _rate_to_untyped(measure: str) -> Callable[[Entry], float | None]:
    return lambda entry: ratio(entry.of(measure), entry.of("untyped"))
