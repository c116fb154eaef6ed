"""Logs of the worker: how lines look, and one line for a batch. See docs/logs.md.

The library never configures logging by itself; only the command line calls `configure`.
"""

from accoda.runtime.logs.lines import HumanFormatter, JsonFormatter, configure
from accoda.runtime.logs.monitor import LogMonitor

__all__ = ["HumanFormatter", "JsonFormatter", "LogMonitor", "configure"]
