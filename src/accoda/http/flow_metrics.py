"""The numbers of flows on the page of a service: those in the store, and those whose end it has seen to itself."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from accoda.flows.listing import count_flows
from accoda.flows.model import FlowState
from accoda.runtime.metrics.families import FLOW_DURATION
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.app import App

FRESH = 15.0
"""Seconds for which flows are not counted again, however often the page is read."""


class FlowMetrics:
    """Of one service. A worker has the same numbers in its own registry."""

    def __init__(self) -> None:
        self._counts: Mapping[FlowState, int] = {}
        self._counted_at = -FRESH
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(FLOW_DURATION) + 1))

    def ended(self, name: str, state: FlowState, seconds: float) -> None:
        """What the coordinator tells."""
        self._seconds[state] += seconds
        self._buckets[state][bisect_left(FLOW_DURATION, seconds)] += 1

    async def counts(self, store: Store) -> Mapping[FlowState, int]:
        """How many flows are in each state, as it was at most `FRESH` seconds ago."""
        now = time.monotonic()
        if now - self._counted_at >= FRESH:
            self._counts, self._counted_at = await count_flows(store), now
        return self._counts

    def ends(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """The samples of the counter and of the histogram."""
        for state, buckets in self._buckets.items():
            yield "accoda_flows_ended_total", (state,), sum(buckets)
        for state, buckets in self._buckets.items():
            below = 0
            for edge, count in zip((*map(str, FLOW_DURATION), "+Inf"), buckets, strict=True):
                below += count
                yield "accoda_flow_duration_seconds_bucket", (state, edge), below
            yield "accoda_flow_duration_seconds_sum", (state,), self._seconds[state]
            yield "accoda_flow_duration_seconds_count", (state,), below


def flow_metrics_of(app: App) -> FlowMetrics:
    """Those of the service of an app."""
    return _known.setdefault(app, FlowMetrics())


_known: WeakKeyDictionary[App, FlowMetrics] = WeakKeyDictionary()
