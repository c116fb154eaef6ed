"""`python -m benchmarks.flows`: jobs that depend on each other, for Accoda and for the queues that have a join.

A fan of 1,000 members and its join; twenty fans whose worker is killed ten times; and Accoda alone with one flow of
10,000 nodes and 10,000 flows of ten. Prints tables and a verdict; a run of everything with at least three rounds
replaces benchmarks/results/flows.md and its chart. docs/benchmarks.md says what is measured and how.
"""

from __future__ import annotations

from benchmarks.flows import report
from benchmarks.flows.catalogue import ENTRIES, ONCE, PARTS, STORAGES
from benchmarks.flows.measures import MEASURES, WORDS, Sample, Values
from benchmarks.peers.comparison import Comparison


def found(measure: str, values: Values) -> str:
    if measure == "kills":
        return f"{values['joined']} of {values['flows']} joins, {values['early']} early, {values['twice']} twice"
    return f"{values['rate']:,.0f} {'flows' if measure == 'many' else 'jobs'}/s"


COMPARISON = Comparison(
    name="flows",
    about=__doc__,
    entries=ENTRIES,
    storages=STORAGES,
    parts=PARTS,
    measures=MEASURES,
    words=WORDS,
    sample=Sample(),
    quick=Sample(fan=200, kill_flows=5, kill_members=40, kills=3, quiet=40.0, wide=1000, many=200),
    report=report,
    found=found,
    once=ONCE,
    rounds_help="how often a fan is measured",
    quick_help="small flows",
)

if __name__ == "__main__":
    COMPARISON.main()
