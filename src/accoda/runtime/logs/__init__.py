"""Logs of the worker: how lines look, which job they are about, and how many there are. See docs/logs.md.

The library never configures logging by itself; only the command line calls `configure`.
"""

from accoda.runtime.logs.job_filter import JobFilter
from accoda.runtime.logs.lines import HumanFormatter, JsonFormatter
from accoda.runtime.logs.monitor import LogMonitor
from accoda.runtime.logs.setup import configure

__all__ = ["HumanFormatter", "JobFilter", "JsonFormatter", "LogMonitor", "configure"]
