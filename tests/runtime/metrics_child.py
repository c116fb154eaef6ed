"""A worker process for the tests of the shared page: reports what it is told on stdin, then says so on stdout.

Lines: `batch QUEUE JOBS CYCLE`, `begin QUEUE JOBS`, `processors N`, `depth QUEUE READY`, `handler` (a counter of the
user's own), `end`.
"""

import sys

from prometheus_client import Counter

from accoda.model import QueueStats, Stats
from accoda.runtime.events import BatchReport, HandlerStats
from accoda.runtime.metrics import Metrics

MAILS = Counter("mails_sent", "What a handler counts for itself")


def obey(metrics: Metrics, word: str, *args: str) -> None:
    if word == "begin":
        metrics.batch_started(args[0], 7, int(args[1]))
    elif word == "batch":
        queue, jobs, cycle = args[0], int(args[1]), float(args[2])
        metrics.batch_started(queue, 7, jobs)
        metrics.batch_ended(BatchReport(queue, 7, jobs, HandlerStats(processed=jobs), cycle, 0.0))
    elif word == "processors":
        metrics.processors_changed(int(args[0]))
    elif word == "depth":
        ready = int(args[1])
        metrics.depths(Stats({args[0]: QueueStats(total=ready, ready=ready, oldest_age=3.0)}), {args[0]: 7})
    elif word == "handler":
        MAILS.inc()


def main() -> None:
    metrics = Metrics()
    for line in sys.stdin:
        if line.strip() == "end":
            return
        obey(metrics, *line.split())
        print("ok", flush=True)  # noqa: T201  the answer to the parent


if __name__ == "__main__":
    main()
