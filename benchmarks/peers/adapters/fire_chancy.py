"""Chancy under fire: heartbeats each second, a worker is dead after three, and its jobs are looked for each second."""

from __future__ import annotations

import asyncio
import logging
import sys

from chancy import Chancy, Job, Queue, Worker
from chancy.plugins.leadership import Leadership
from chancy.plugins.recovery import Recovery
from diary import AT_ONCE, Order, main

running: list[Order] = []


async def numbers(*, number: int) -> None:
    await running[0].run_async(number)


def fill(order: Order) -> None:
    async def run() -> None:
        async with Chancy(order.url) as chancy:
            await chancy.migrate()
            queue = Queue("fire", executor=Chancy.Executor.Async, concurrency=AT_ONCE, eager_polling=True)
            await chancy.declare(queue)
            job = Job(func="fire_chancy.numbers", queue="fire")
            async for _ in chancy.push_many([job.with_kwargs(number=number) for number in range(order.count)]):
                pass

    asyncio.run(run())


def work(order: Order) -> None:
    logging.disable(logging.WARNING)
    sys.modules["fire_chancy"] = sys.modules["__main__"]  # jobs name their function by its module
    running.append(order)

    async def run() -> None:
        chancy = Chancy(order.url, plugins=[Leadership(poll_interval=1, timeout=3), Recovery(poll_interval=1)])
        beat = {"heartbeat_poll_interval": 1, "heartbeat_timeout": 3}
        async with chancy, Worker(chancy, register_signal_handlers=False, **beat) as worker:
            await worker.wait_for_shutdown()

    asyncio.run(run())


if __name__ == "__main__":
    main(fill, work)
