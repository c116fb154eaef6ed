"""Huey under fire, on Redis or SQLite: it has no setting against lost workers, since taking a job deletes it."""

from __future__ import annotations

import logging
from typing import Any

from diary import AT_ONCE, Order, main
from huey import Huey, RedisHuey, SqliteHuey


def open_huey(order: Order) -> Huey:
    if order.url.startswith("redis:"):
        return RedisHuey("fire", url=order.url, results=False)
    return SqliteHuey("fire", filename=order.url.removeprefix("sqlite:///"), results=False)


def task_of(huey: Huey, order: Order) -> Any:
    def numbers(number: int) -> None:
        order.run(number)

    return huey.task(name="numbers")(numbers)


def fill(order: Order) -> None:
    task = task_of(open_huey(order), order)
    for number in range(order.count):
        task(number)


def work(order: Order) -> None:
    logging.disable(logging.WARNING)
    huey = open_huey(order)
    task_of(huey, order)
    options: dict[str, Any] = {"worker_type": "thread", "periodic": False, "initial_delay": 0.01, "max_delay": 0.01}
    huey.create_consumer(workers=AT_ONCE, **options).run()


if __name__ == "__main__":
    main(fill, work)
