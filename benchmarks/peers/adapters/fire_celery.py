"""Celery under fire, as its documentation sets it against lost workers: late acknowledgement, no prefetching."""

from __future__ import annotations

from typing import Any

from celery import Celery
from diary import AT_ONCE, Order, main


def task_of(order: Order) -> Any:
    def numbers(number: int) -> None:
        order.run(number)

    app = Celery("fire", broker=order.url)
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": 10},
    )
    return app.task(numbers, name="numbers")


def fill(order: Order) -> None:
    task = task_of(order)
    for number in range(order.count):
        task.delay(number)


def work(order: Order) -> None:
    task_of(order).app.worker_main(["worker", "--loglevel=ERROR", f"--concurrency={AT_ONCE}"])


if __name__ == "__main__":
    main(fill, work)
