"""Dramatiq: first in, first out, as in all queues that know no customers."""

from __future__ import annotations

import threading
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from laned import Order, Starts, await_start, say


def main(order: Order) -> None:
    starts, broker = Starts(order.others), RedisBroker(url=order.url)
    dramatiq.set_broker(broker)

    def fifo(customer: str) -> None:
        starts.started(customer)
        time.sleep(order.length)

    actor = dramatiq.actor(fifo, broker=broker)
    for customer in order.customers():
        actor.send(customer)
    await_start()
    dramatiq.Worker(broker, worker_threads=order.slots, **order.options["worker"]).start()
    starts.complete.wait()
    say(starts.found())
    threading.Event().wait()


if __name__ == "__main__":
    main(Order.read())
