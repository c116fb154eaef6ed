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
        tally.ran(payload)

    broker = RedisBroker(url=order.url, **order.options.get("broker", {}))
    dramatiq.set_broker(broker)
    return dramatiq.actor(noop, broker=broker)


class Producer:
    """No `many`: its `group` enqueues one by one."""

    def __init__(self, order: Order) -> None:
        self.noop = actor_of(order, None)

    def one(self, payload: dict[str, Any]) -> None:
        self.noop.send(payload)

    def later(self, payload: dict[str, Any], seconds: float) -> None:
        self.noop.send_with_options(args=(payload,), delay=round(seconds * 1000))

    def close(self) -> None:
        self.noop.broker.close()


def fill(order: Order) -> None:
    noop = actor_of(order, None)
    for _ in range(order.count):
        noop.send(PAYLOAD)


def work(order: Order, tally: Tally) -> None:
    noop = actor_of(order, tally)
    dramatiq.Worker(noop.broker, **order.options["worker"]).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(fill, work, Producer)
