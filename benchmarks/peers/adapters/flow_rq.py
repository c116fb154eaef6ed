"""RQ: a job that depends on all the others. `workers` `SimpleWorker`s, each a process, which run jobs in themselves."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

from joining import Notes, Order, main
from redis import Redis
from rq import Queue, Retry, SimpleWorker
from rq.job import Dependency
from rq.timeouts import BaseDeathPenalty

running: list[Notes] = []


class NoDeathPenalty(BaseDeathPenalty):
    """No alarm is set for each job: a handler here cannot hang."""

    def setup_death_penalty(self) -> None: ...

    def cancel_death_penalty(self) -> None: ...


class Worker(SimpleWorker):
    death_penalty_class = NoDeathPenalty


def member(flow: int, index: int) -> None:
    running[0].member(flow, index)


def join(flow: int) -> None:
    running[0].join(flow)


def open_queue(order: Order) -> Queue:
    return Queue("flows", connection=Redis.from_url(order.url), default_timeout=order.options.get("timeout"))


class Producer:
    """Results are kept as by default: the job of a member that is gone could not be depended on."""

    def __init__(self, order: Order) -> None:
        self.queue = open_queue(order)
        retries = order.options.get("retries", 0)
        self.options: dict[str, Any] = {"retry": Retry(max=retries)} if retries else {}

    def start(self, flow: int, members: int) -> None:
        calls = [Queue.prepare_data("flow_rq.member", (flow, index), **self.options) for index in range(members)]
        jobs = self.queue.enqueue_many(calls)
        self.queue.enqueue_call("flow_rq.join", (flow,), depends_on=Dependency(jobs=jobs), **self.options)


def work_one(order: Order, notes: Notes) -> None:
    sys.modules["flow_rq"] = sys.modules["__main__"]  # jobs name their function by its module
    running.append(notes)
    queue = open_queue(order)
    worker = Worker([queue], connection=queue.connection, **order.options.get("worker", {}))
    worker.work(logging_level="ERROR")


def work(order: Order, notes: Notes) -> None:
    crowd = [multiprocessing.Process(target=work_one, args=(order, notes)) for _ in range(order.options["workers"])]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()


if __name__ == "__main__":
    main(Producer, work)
