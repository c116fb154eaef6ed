"""Dramatiq: its `Worker` with threads, on Redis."""

from __future__ import annotations

import threading
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from tally import PAYLOAD, Order, Tally, main


def actor_of(order: Order, tally: Tally | None) -> Any:
    def noop(payload: dict[str, Any]) -> None:
        assert tally is not None
        tally.ran()

    broker = RedisBroker(url=order.url)
    dramatiq.set_broker(broker)
    return dramatiq.actor(noop, broker=broker)


def fill(order: Order) -> None:
    noop = actor_of(order, None)
    for _ in range(order.count):
        noop.send(PAYLOAD)


def work(order: Order, tally: Tally) -> None:
    noop = actor_of(order, tally)
    dramatiq.Worker(noop.broker, worker_threads=order.options["threads"]).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(fill, work)
