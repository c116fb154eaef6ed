"""Dramatiq's groups with a completion callback: its GroupCallbacks middleware, which counts in Redis."""

from __future__ import annotations

import threading
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import RedisBackend
from joining import Notes, Order, main


class Actors:
    def __init__(self, order: Order, notes: Notes | None) -> None:
        def member(flow: int, index: int) -> None:
            assert notes is not None
            notes.member(flow, index)

        def join(flow: int) -> None:
            assert notes is not None
            notes.join(flow)

        self.broker = RedisBroker(url=order.url, **order.options.get("broker", {}))
        self.broker.add_middleware(GroupCallbacks(RedisBackend(url=order.url)))
        dramatiq.set_broker(self.broker)
        self.member: Any = dramatiq.actor(member, broker=self.broker)
        self.join: Any = dramatiq.actor(join, broker=self.broker)


class Producer:
    def __init__(self, order: Order) -> None:
        self.actors = Actors(order, None)

    def start(self, flow: int, members: int) -> None:
        group = dramatiq.group([self.actors.member.message(flow, index) for index in range(members)])
        group.add_completion_callback(self.actors.join.message(flow))
        group.run()


def work(order: Order, notes: Notes) -> None:
    dramatiq.Worker(Actors(order, notes).broker, **order.options["worker"]).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(Producer, work)
