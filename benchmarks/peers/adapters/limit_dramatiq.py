"""Dramatiq: a ConcurrentRateLimiter for each customer, as its guide shows. A job that finds it full raises, and the
Retries middleware enqueues it again after a backoff."""

from __future__ import annotations

import logging
import threading
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.rate_limits.backends import RedisBackend
from laned import customer_of
from timed import Jobs, Order, main


def actor_of(order: Order, jobs: Jobs | None) -> Any:
    broker, backend = RedisBroker(url=order.url), RedisBackend(url=order.url)
    limit, customers = order.options["limit"], order.options["customers"]
    names = {customer_of(index, order.slots, customers) for index in range(order.slots + customers)}
    limiters = {name: ConcurrentRateLimiter(backend, name, limit=limit) for name in names}

    def limited(payload: dict[str, Any]) -> None:
        assert jobs is not None
        with limiters[customer_of(payload["index"], order.slots, customers)].acquire():
            jobs.run(payload)

    dramatiq.set_broker(broker)
    return dramatiq.actor(limited, broker=broker, **order.options["actor"])


def fill(order: Order) -> None:
    actor = actor_of(order, None)
    for payload in order.payloads():
        actor.send(payload)


def work(order: Order, jobs: Jobs) -> None:
    logging.disable(logging.WARNING)  # a line for each retry
    dramatiq.Worker(actor_of(order, jobs).broker, worker_threads=order.slots, **order.options["worker"]).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(fill, work)
