"""Prometheus metrics of a worker, their page, and the page of several processes as one. See docs/metrics.md.

`prometheus-client` is an extra and is imported when the first `Metrics` or `SharedMetrics` is made; the server with its
health answers needs nothing.
"""

from accoda.runtime.metrics.families import FAMILIES, Family
from accoda.runtime.metrics.lanes import lanes_from
from accoda.runtime.metrics.monitor import Metrics
from accoda.runtime.metrics.server import Server, serve
from accoda.runtime.metrics.shared import SharedMetrics

__all__ = ["FAMILIES", "Family", "Metrics", "Server", "SharedMetrics", "lanes_from", "serve"]
