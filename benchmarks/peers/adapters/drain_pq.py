"""pq: it has no worker of its own, so a plain loop, as in its README.

By default a job is gone when it is handed out. Within a transaction, which its README offers for that, it comes back
when the process dies; pq cannot wait for a notice inside of one, so that loop polls.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import psycopg2
from pq import PQ
from psycopg2.pool import ThreadedConnectionPool
from tally import PAYLOAD, Order, Tally, main

POLL = 0.01
THREADS = 16


def fill(order: Order) -> None:
    with psycopg2.connect(order.url) as connection:
        PQ(connection).create()
        queue = PQ(connection)["bench"]
        with queue:
            for _ in range(order.count):
                queue.put(PAYLOAD)


def work(order: Order, tally: Tally) -> None:
    queue = PQ(psycopg2.connect(order.url))["bench"]
    if order.options.get("transaction"):
        work_safely(queue, tally)
    for job in queue:
        if job is not None:
            tally.ran(job.data)


def work_safely(queue: Any, tally: Tally) -> None:
    while True:
        with queue:
            job = queue.get(block=False)
            if job is not None:
                tally.ran(job.data)
        if job is None:
            time.sleep(POLL)


class Producer:
    """With a pool, as its README wants it for threads; it keeps as many connections as its minimum says."""

    def __init__(self, order: Order) -> None:
        self._pool = ThreadedConnectionPool(THREADS, THREADS, order.url)
        self._queue = PQ(pool=self._pool)["bench"]

    def one(self, payload: dict[str, Any]) -> None:
        self._queue.put(payload)

    def later(self, payload: dict[str, Any], seconds: float) -> None:
        self._queue.put(payload, schedule_at=timedelta(seconds=seconds))

    def close(self) -> None:
        self._pool.closeall()


if __name__ == "__main__":
    main(fill, work, Producer)
