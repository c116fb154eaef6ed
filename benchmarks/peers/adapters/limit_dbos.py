"""DBOS: a queue with `partition_concurrency`, the customer being the partition."""

from __future__ import annotations

import threading

from dbos_app import enqueue, launch
from laned import customer_of
from timed import Jobs, Order, main


def fill(order: Order) -> None:
    customers = order.options["customers"]
    enqueue(order.url, ((customer_of(each["index"], order.slots, customers), each) for each in order.payloads()))


def work(order: Order, jobs: Jobs) -> None:
    limit = order.options["limit"]
    launch(
        order.url, jobs.run_async, partition_concurrency=limit, worker_concurrency=order.slots, **order.options["queue"]
    )
    threading.Event().wait()


if __name__ == "__main__":
    main(fill, work)
