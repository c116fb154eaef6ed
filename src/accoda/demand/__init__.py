"""Demand: many waiters share one job, whose rank comes from who waits, how many they are, and by when."""

from accoda.demand.counters import Counts
from accoda.demand.demand import Demand
from accoda.demand.options import Answer, DemandOptions, DemandView
from accoda.demand.prefetch import Prefetch
from accoda.demand.score import Crowd, Weights, Wish, band, crowd_of, score
from accoda.demand.standing import QueueMetrics
from accoda.demand.waiters import Waiter

__all__ = [
    "Answer",
    "Counts",
    "Crowd",
    "Demand",
    "DemandOptions",
    "DemandView",
    "Prefetch",
    "QueueMetrics",
    "Waiter",
    "Weights",
    "Wish",
    "band",
    "crowd_of",
    "score",
]
