"""RQ: a `SimpleWorker`, which runs the jobs in its own process, on Redis."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from redis import Redis
from rq import Queue, Retry, SimpleWorker
from rq.timeouts import BaseDeathPenalty
from tally import PAYLOAD, Order, Tally, main

NOOP = "drain_rq.noop"
running: list[Tally] = []


class NoDeathPenalty(BaseDeathPenalty):
    """No alarm is set for each job: a handler here cannot hang."""

    def setup_death_penalty(self) -> None: ...

    def cancel_death_penalty(self) -> None: ...


class Worker(SimpleWorker):
    death_penalty_class = NoDeathPenalty


def noop(payload: dict[str, Any]) -> None:
    running[0].ran(payload)


def open_queue(order: Order) -> Queue:
    return Queue("bench", connection=Redis.from_url(order.url), default_timeout=order.options.get("timeout"))


def job_options(order: Order) -> dict[str, Any]:
    """`retries`: an abandoned job is enqueued again only if it has retries left."""
    retries = order.options.get("retries", 0)
    return {"result_ttl": 0, "retry": Retry(max=retries) if retries else None}


class Producer:
    def __init__(self, order: Order) -> None:
        self.queue = open_queue(order)
        self.options = job_options(order)

    def one(self, payload: dict[str, Any]) -> None:
        self.queue.enqueue_call(NOOP, (payload,), **self.options)

    def many(self, payloads: list[dict[str, Any]]) -> None:
        self.queue.enqueue_many([Queue.prepare_data(NOOP, (payload,), **self.options) for payload in payloads])

    def later(self, payload: dict[str, Any], seconds: float) -> None:
        self.queue.enqueue_in(timedelta(seconds=seconds), NOOP, payload, **self.options)

    def close(self) -> None:
        self.queue.connection.close()


def fill(order: Order) -> None:
    producer = Producer(order)
    for start in range(0, order.count, 500):
        producer.many([PAYLOAD] * min(500, order.count - start))


def work(order: Order, tally: Tally) -> None:
    running.append(tally)
    sys.modules["drain_rq"] = sys.modules["__main__"]  # jobs name their function by its module
    queue = open_queue(order)
    worker = Worker([queue], connection=queue.connection, **order.options.get("worker", {}))
    # Its scheduler is a process that the worker forks; only delayed jobs need it.
    worker.work(logging_level="ERROR", with_scheduler=order.measure == "delayed")


if __name__ == "__main__":
    main(fill, work, Producer)
