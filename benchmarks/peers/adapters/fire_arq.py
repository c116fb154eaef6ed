"""arq under fire: a job may be taken again ten seconds after its timeout, which is one second, a hundred times."""

from __future__ import annotations

import asyncio
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from diary import AT_ONCE, Order, main


def fill(order: Order) -> None:
    async def run() -> None:
        pool = await create_pool(RedisSettings.from_dsn(order.url))
        for number in range(order.count):
            await pool.enqueue_job("numbers", number)
        await pool.aclose()

    asyncio.run(run())


def work(order: Order) -> None:
    async def numbers(ctx: Any, number: int) -> None:
        await order.run_async(number)

    async def run() -> None:
        worker = Worker(
            [func(numbers, name="numbers", keep_result=0)],
            redis_settings=RedisSettings.from_dsn(order.url),
            handle_signals=False,
            max_jobs=AT_ONCE,
            max_tries=100,
            job_timeout=1,
            poll_delay=0.01,
        )
        await worker.async_run()

    asyncio.run(run())


if __name__ == "__main__":
    main(fill, work)
