"""`python -m benchmarks.lanes`: jobs of customers, for Accoda and for the queues that can limit the jobs of each.

The rate with lanes beside the rate without; how soon small customers start behind one with many jobs; and how well a
limit for each customer is used. Prints tables and a verdict; a run of everything with at least three rounds replaces
benchmarks/results/lanes.md and its chart. docs/benchmarks.md says what is measured and how.
"""

from __future__ import annotations

from benchmarks.lanes import report
from benchmarks.lanes.catalogue import ENTRIES, ONCE, PARTS, STORAGES
from benchmarks.lanes.measures import MEASURES, WORDS, Sample, Values
from benchmarks.peers.comparison import Comparison


def found(_measure: str, values: Values) -> str:
    if "rate" in values:
        return f"{values['rate']:,.0f}/s, enqueued {values['enqueued']:,.0f}/s"
    if "within" in values:
        return f"the others within {values['within']:,} starts"
    return f"{values['share']:.0%} of the ideal, most at once {values['most']}, {values['never']} never ran"


COMPARISON = Comparison(
    name="lanes",
    about=__doc__,
    entries=ENTRIES,
    storages=STORAGES,
    parts=PARTS,
    measures=MEASURES,
    words=WORDS,
    sample=Sample(),
    quick=Sample(jobs=3000, large=5000, crowd=500, limited=20, quiet=5.0),
    report=report,
    found=found,
    once=ONCE,
)

if __name__ == "__main__":
    COMPARISON.main()
