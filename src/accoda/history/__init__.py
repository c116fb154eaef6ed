"""What happened: rings of counters for every queue and budget, of fixed size whatever the traffic, kept as documents.

| file        | what it does                                                                        |
| ----------- | ----------------------------------------------------------------------------------- |
| points.py   | the records: `Point`, `Series`, `ServiceRate`, and the three spans                  |
| ring.py     | a ring of slots as bytes; pure                                                      |
| memory.py   | what a recorder remembers from round to round                                       |
| plan.py     | what a round writes; pure                                                           |
| rings.py    | rings in a store, with a fence against a round that was overtaken                   |
| recorder.py | the duty of `accoda.history`: one job that comes back every 15 seconds              |
| reading.py  | series with a fixed number of points, rates                                         |
| sparks.py   | the last quarter of an hour of all queues in one document                           |
"""

from accoda.history.points import BudgetPoint, Point, Series, ServiceRate, Span
from accoda.history.reading import read_budget_history, read_history, read_rate, read_sparks
from accoda.history.recorder import QUEUE, Recorder
from accoda.history.sparks import Spark

__all__ = [
    "QUEUE",
    "BudgetPoint",
    "Point",
    "Recorder",
    "Series",
    "ServiceRate",
    "Span",
    "Spark",
    "read_budget_history",
    "read_history",
    "read_rate",
    "read_sparks",
]
