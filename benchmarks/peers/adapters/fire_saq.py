"""SAQ under fire: jobs that are over time are swept every second and tried again."""

from __future__ import annotations

import asyncio
from typing import Any

from diary import AT_ONCE, Order, main
from saq import Queue, Worker


def fill(order: Order) -> None:
    async def run() -> None:
        queue = Queue.from_url(order.url)
        await queue.connect()
        for number in range(order.count):
            await queue.enqueue("numbers", number=number, timeout=2, retries=100, ttl=-1)
        await queue.disconnect()

    asyncio.run(run())


def work(order: Order) -> None:
    async def numbers(ctx: Any, *, number: int) -> None:
        await order.run_async(number)

    async def run() -> None:
        queue = Queue.from_url(order.url)
        await queue.connect()
        timers: Any = {"sweep": 1}
        worker: Worker[Any] = Worker(queue, functions=[("numbers", numbers)], concurrency=AT_ONCE, timers=timers)
        await worker.start()

    asyncio.run(run())


if __name__ == "__main__":
    main(fill, work)
