"""Dramatiq under fire: a worker without a heartbeat for three seconds is dead, and its messages go back."""

from __future__ import annotations

import logging
import threading
from typing import Any

import dramatiq
from diary import AT_ONCE, Order, main
from dramatiq.brokers.redis import RedisBroker


def actor_of(order: Order) -> Any:
    def numbers(number: int) -> None:
        order.run(number)

    # The dead are looked for in one of ten commands (its default is one of a thousand).
    broker = RedisBroker(url=order.url, heartbeat_timeout=3000, maintenance_chance=100_000)
    dramatiq.set_broker(broker)
    return dramatiq.actor(numbers, broker=broker)


def fill(order: Order) -> None:
    actor = actor_of(order)
    for number in range(order.count):
        actor.send(number)


def work(order: Order) -> None:
    logging.disable(logging.WARNING)
    dramatiq.Worker(actor_of(order).broker, worker_threads=AT_ONCE).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(fill, work)
