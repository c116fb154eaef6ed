"""SAQ: its `Worker`, on Redis or PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from saq import Queue, Worker
from tally import PAYLOAD, Order, Tally, main

AT_ONCE = 50


def open_queue(order: Order) -> Queue:
    return Queue.from_url(order.url, **order.options.get("queue", {}))


def fill(order: Order) -> None:
    async def put(queue: Queue, count: int) -> None:
        for _ in range(count):
            await queue.enqueue("noop", payload=PAYLOAD, ttl=-1)  # -1: no result is kept

    async def run() -> None:
        queue = open_queue(order)
        await queue.connect()
        shares = [order.count // AT_ONCE + (place < order.count % AT_ONCE) for place in range(AT_ONCE)]
        await asyncio.gather(*(put(queue, share) for share in shares))
        await queue.disconnect()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def noop(ctx: Any, *, payload: dict[str, Any]) -> None:
        tally.ran()

    async def run() -> None:
        queue = open_queue(order)
        await queue.connect()
        worker: Worker[Any] = Worker(queue, functions=[("noop", noop)], concurrency=order.options["concurrency"])
        await worker.start()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
