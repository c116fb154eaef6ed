"""`python -m benchmarks.mixed`: work as teams have it, for Accoda and for the queues that one would use instead.

Most jobs are short, one in twenty takes a second: how close does a worker come to the best schedule? Beside that a slow
job and its neighbours, jobs that keep a processor busy, and queues with jobs of several types. Prints tables and a
verdict; a run of everything with at least three rounds replaces benchmarks/results/mixed.md and its chart.
docs/benchmarks.md says what is measured and how.
"""

from __future__ import annotations

from benchmarks.mixed import report
from benchmarks.mixed.catalogue import ENTRIES, PARTS, STORAGES
from benchmarks.mixed.measures import MEASURES, WORDS, Sample, Values
from benchmarks.peers.comparison import Comparison


def found(_measure: str, values: Values) -> str:
    if "rate" in values:
        return f"{values['rate']:,.0f}/s"
    return f"{values['share']:.0%} of the ideal, {values['seconds']:.2f} s for {values['ideal']:.2f} s"


COMPARISON = Comparison(
    name="mixed",
    about=__doc__,
    entries=ENTRIES,
    storages=STORAGES,
    parts=PARTS,
    measures=MEASURES,
    words=WORDS,
    sample=Sample(),
    quick=Sample(mixed=150, neighbours=100, busy=50, drained=0.15),
    report=report,
    found=found,
)

if __name__ == "__main__":
    COMPARISON.main()
