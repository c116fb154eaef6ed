"""arq at mixed work: `max_jobs` is its slots; blocking code runs in an executor, as its documentation shows."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from timed import Jobs, Order, main


def fill(order: Order) -> None:
    async def run() -> None:
        pool = await create_pool(RedisSettings.from_dsn(order.url))
        for payload in order.payloads():
            await pool.enqueue_job("mixed", payload)
        await pool.aclose()

    uvloop.run(run())


def work(order: Order, jobs: Jobs) -> None:
    threads = ThreadPoolExecutor(order.slots)

    async def mixed(ctx: Any, payload: dict[str, Any]) -> None:
        await jobs.run_async(payload)

    async def blocking(ctx: Any, payload: dict[str, Any]) -> None:
        await asyncio.get_running_loop().run_in_executor(threads, jobs.run, payload)

    async def run() -> None:
        worker = Worker(
            [func(mixed if order.how == "async" else blocking, name="mixed", keep_result=0)],
            redis_settings=RedisSettings.from_dsn(order.url),
            handle_signals=False,
            log_results=False,
            max_jobs=order.slots,
            **order.options,
        )
        await worker.async_run()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
