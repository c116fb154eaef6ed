"""Demand: many waiters share one job, whose rank follows from their number, their tiers and when they are due."""

from accoda.demand.demand import Demand
from accoda.demand.metrics import Counts, DemandView, QueueMetrics
from accoda.demand.options import Answer, DemandOptions
from accoda.demand.prefetch import Prefetch
from accoda.demand.score import Crowd, Weights, band, crowd_of, score
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
    "band",
    "crowd_of",
    "score",
]
