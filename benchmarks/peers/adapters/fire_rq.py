"""RQ under fire: jobs with retries. A job's heartbeat ends a minute after its timeout; the dead are looked for often.

Four `SimpleWorker`s run in each group: the worker that forks gives each job's process a group of its own, which would
outlive the kill.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

from diary import AT_ONCE, Order, main
from redis import Redis
from rq import Queue, Retry, SimpleWorker

TASK = "fire_rq.numbers"
running: list[Order] = []


def numbers(number: int) -> None:
    running[0].run(number)


def open_queue(order: Order) -> Queue:
    return Queue("numbers", connection=Redis.from_url(order.url), default_timeout=2)


def fill(order: Order) -> None:
    queue = open_queue(order)
    options: dict[str, Any] = {"retry": Retry(max=100), "result_ttl": 0}
    for start in range(0, order.count, 500):
        here = range(start, min(start + 500, order.count))
        queue.enqueue_many([Queue.prepare_data(TASK, (number,), **options) for number in here])


def work_one(order: Order) -> None:
    sys.modules["fire_rq"] = sys.modules["__main__"]  # jobs name their function by its module
    running.append(order)
    queue = open_queue(order)
    # An idle worker looks after others' jobs when its wait is over, 15 s before its own time to live is.
    worker = SimpleWorker([queue], connection=queue.connection, maintenance_interval=1, worker_ttl=20)
    worker.work(logging_level="ERROR")


def work(order: Order) -> None:
    crowd = [multiprocessing.Process(target=work_one, args=(order,)) for _ in range(AT_ONCE)]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()


if __name__ == "__main__":
    main(fill, work)
