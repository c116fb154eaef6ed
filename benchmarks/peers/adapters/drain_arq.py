"""arq: its `Worker`, on Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker, func
from tally import PAYLOAD, Order, Tally, main

AT_ONCE = 20


class Producer:
    pool: ArqRedis

    def __init__(self, order: Order) -> None:
        self.settings = RedisSettings.from_dsn(order.url)

    async def open(self) -> None:
        self.pool = await create_pool(self.settings)

    async def one(self, payload: dict[str, Any]) -> None:
        await self.pool.enqueue_job("noop", payload)

    async def later(self, payload: dict[str, Any], seconds: float) -> None:
        await self.pool.enqueue_job("noop", payload, _defer_by=seconds)

    async def close(self) -> None:
        await self.pool.aclose()


def fill(order: Order) -> None:
    async def run() -> None:
        producer = Producer(order)
        await producer.open()
        for start in range(0, order.count, AT_ONCE):
            here = min(AT_ONCE, order.count - start)
            await asyncio.gather(*(producer.one(PAYLOAD) for _ in range(here)))
        await producer.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def noop(ctx: Any, payload: dict[str, Any]) -> None:
        tally.ran(payload)

    async def run() -> None:
        worker = Worker(
            [func(noop, name="noop", keep_result=0)],
            redis_settings=RedisSettings.from_dsn(order.url),
            handle_signals=False,
            log_results=False,
            **order.options,
        )
        await worker.async_run()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work, Producer)
