"""SAQ: its `Worker`, on Redis or PostgreSQL."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import uvloop
from saq import Queue, Worker
from tally import PAYLOAD, Order, Tally, main

AT_ONCE = 50


def open_queue(order: Order) -> Queue:
    options = dict(order.options.get("queue", {}))
    if order.options.get("orjson"):
        import orjson

        options.update(dump=orjson.dumps, load=orjson.loads)
    return Queue.from_url(order.url, **options)


class Producer:
    """No `many`: its `map` waits for the results."""

    queue: Queue

    def __init__(self, order: Order) -> None:
        self.order = order
        self.options = {"ttl": -1, "retries": order.options.get("retries", 1)}  # ttl -1: no result is kept

    async def open(self) -> None:
        self.queue = open_queue(self.order)
        await self.queue.connect()

    async def one(self, payload: dict[str, Any]) -> None:
        await self.queue.enqueue("noop", payload=payload, **self.options)

    async def later(self, payload: dict[str, Any], seconds: float) -> None:
        # It takes whole seconds; the next one, so that no job is early.
        await self.queue.enqueue("noop", payload=payload, scheduled=math.ceil(time.time() + seconds), **self.options)

    async def close(self) -> None:
        await self.queue.disconnect()


def fill(order: Order) -> None:
    async def put(producer: Producer, count: int) -> None:
        for _ in range(count):
            await producer.one(PAYLOAD)

    async def run() -> None:
        producer = Producer(order)
        await producer.open()
        shares = [order.count // AT_ONCE + (place < order.count % AT_ONCE) for place in range(AT_ONCE)]
        await asyncio.gather(*(put(producer, share) for share in shares))
        await producer.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def noop(ctx: Any, *, payload: dict[str, Any]) -> None:
        tally.ran(payload)

    async def run() -> None:
        queue = open_queue(order)
        await queue.connect()
        options = {name: order.options[name] for name in ("concurrency", "timers") if name in order.options}
        worker: Worker[Any] = Worker(queue, functions=[("noop", noop)], **options)
        await worker.start()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work, Producer)
