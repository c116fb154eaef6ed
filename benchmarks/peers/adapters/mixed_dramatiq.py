"""Dramatiq at mixed work: a thread a slot, also for `async def` actors, which its AsyncIO middleware runs."""

from __future__ import annotations

import threading
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AsyncIO
from timed import Jobs, Order, main


def actor_of(order: Order, jobs: Jobs | None) -> Any:
    async def mixed(payload: dict[str, Any]) -> None:
        assert jobs is not None
        await jobs.run_async(payload)

    def blocking(payload: dict[str, Any]) -> None:
        assert jobs is not None
        jobs.run(payload)

    broker = RedisBroker(url=order.url)
    broker.add_middleware(AsyncIO())
    dramatiq.set_broker(broker)
    return dramatiq.actor(mixed if order.how == "async" else blocking, actor_name="mixed", broker=broker)


def fill(order: Order) -> None:
    actor = actor_of(order, None)
    for payload in order.payloads():
        actor.send(payload)


def work(order: Order, jobs: Jobs) -> None:
    actor = actor_of(order, jobs)
    dramatiq.Worker(actor.broker, worker_threads=order.slots, **order.options).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(fill, work)
