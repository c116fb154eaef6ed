"""What Accoda promises of lanes, and whether this run shows it. Computed, never typed in.

Each demand holds on every storage: a line tells of the one on which Accoda is furthest from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.lanes.catalogue import FAIR
from benchmarks.lanes.measures import LIMIT, WORDS
from benchmarks.mixed.verdict import at_least, ours, peers, per_storage
from benchmarks.peers.findings import Entry, Section, ratio
from benchmarks.peers.verdict import Line

LEAST_RATE = 0.5
WITHIN = 60
BASE = {"one": "plain", "full": "plain", "thousand": "plain", "each": "plain-large"}
"""The measure without lanes that one with lanes is compared with."""
RATES = {"rate": "drains", "enqueued": "enqueues"}


def verdict(sections: Sequence[Section]) -> list[Line]:
    """A line for each demand, in the order in which they are made."""
    return [
        *(half(sections, measure, what) for what in RATES for measure in BASE),
        *(soon(sections, measure) for measure in FAIR),
        kept(sections),
        ahead(sections),
    ]


def half(sections: Sequence[Section], measure: str, what: str) -> Line:
    def share(entry: Entry) -> float | None:
        return ratio(entry.of(measure), entry.of(BASE[measure]), what)

    demand = f"{WORDS[measure]}: {RATES[what]} at least {LEAST_RATE:.0%} of the rate without"
    return at_least(demand, LEAST_RATE, per_storage(sections, measure, share))


def soon(sections: Sequence[Section], measure: str) -> Line:
    """In the worst of the rounds."""
    demand = f"{WORDS[measure]}: all other customers start within the first {WITHIN} starts"
    found = per_storage(sections, measure, lambda entry: max(entry.of(measure).known("within"), default=None))
    if not found:
        return Line(demand, "", "", None)
    value, where = max(found)
    return Line(demand, f"{value:.0f} on {where}", "", value <= WITHIN)


def kept(sections: Sequence[Section]) -> Line:
    """Never more at once than the limit, in any round, and every job runs once."""
    demand = f"{WORDS['limit']}: at most {LIMIT} at once, and every job runs once"
    found = per_storage(sections, "limit", lambda entry: max(entry.of("limit").known("most"), default=None))
    if not found:
        return Line(demand, "", "", None)
    value, where = max(found)
    wrong = sum(
        sum(entry.of("limit").known(what)) for _, entry in ours(sections, "limit") for what in ("never", "repeated")
    )
    return Line(demand, f"{value:.0f} on {where}, {wrong:.0f} jobs not once", "", value <= LIMIT and not wrong)


def ahead(sections: Sequence[Section]) -> Line:
    """Of every peer that keeps the limit, on whatever storage."""
    demand = f"{WORDS['limit']}: a larger share of the ideal than every peer that keeps it"
    shares = per_storage(sections, "limit", lambda entry: entry.middle("limit", "share"))
    rivals = [
        (share, f"{entry.title} on {where.title}: {share:.0%}")
        for where, entry in peers(sections, "limit")
        if (share := entry.middle("limit", "share")) is not None
        and max(entry.of("limit").known("most")) <= LIMIT
        and not sum(entry.of("limit").known("never"))
    ]
    if not shares or not rivals:
        return Line(demand, "", "", None)
    (value, where), (best, rival) = min(shares), max(rivals)
    return Line(demand, f"{value:.0%} on {where}", rival, value > best)
