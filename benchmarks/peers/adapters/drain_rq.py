"""RQ: a `SimpleWorker`, which runs the jobs in its own process, on Redis."""

from __future__ import annotations

import sys
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker
from rq.timeouts import BaseDeathPenalty
from tally import PAYLOAD, Order, Tally, main

running: list[Tally] = []


class NoDeathPenalty(BaseDeathPenalty):
    """Jobs here have no timeout: no alarm is set for each."""

    def setup_death_penalty(self) -> None: ...

    def cancel_death_penalty(self) -> None: ...


class Worker(SimpleWorker):
    death_penalty_class = NoDeathPenalty


def noop(payload: dict[str, Any]) -> None:
    running[0].ran()


def fill(order: Order) -> None:
    queue = Queue("bench", connection=Redis.from_url(order.url))
    for start in range(0, order.count, 500):
        here = min(500, order.count - start)
        queue.enqueue_many([Queue.prepare_data("drain_rq.noop", (PAYLOAD,), result_ttl=0) for _ in range(here)])


def work(order: Order, tally: Tally) -> None:
    running.append(tally)
    sys.modules["drain_rq"] = sys.modules["__main__"]  # jobs name their function by its module
    connection = Redis.from_url(order.url)
    Worker([Queue("bench", connection=connection)], connection=connection).work(logging_level="ERROR")


if __name__ == "__main__":
    main(fill, work)
