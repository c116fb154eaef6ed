"""arq: its `Worker`, on Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from tally import PAYLOAD, Order, Tally, main

AT_ONCE = 20


def fill(order: Order) -> None:
    async def run() -> None:
        pool = await create_pool(RedisSettings.from_dsn(order.url))
        for start in range(0, order.count, AT_ONCE):
            here = min(AT_ONCE, order.count - start)
            await asyncio.gather(*(pool.enqueue_job("noop", PAYLOAD) for _ in range(here)))

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def noop(ctx: Any, payload: dict[str, Any]) -> None:
        tally.ran()

    async def run() -> None:
        worker = Worker(
            [func(noop, name="noop", keep_result=0)],
            redis_settings=RedisSettings.from_dsn(order.url),
            handle_signals=False,
            **order.options,
        )
        await worker.async_run()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
