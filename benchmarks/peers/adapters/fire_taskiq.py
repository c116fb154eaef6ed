"""taskiq under fire: a Redis stream, acknowledged after the run; what is not goes to another worker after 5 s."""

from __future__ import annotations

import asyncio
from typing import Any

from diary import AT_ONCE, Order, main
from taskiq import AsyncBroker
from taskiq.acks import AcknowledgeType
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker


def open_broker(order: Order) -> AsyncBroker:
    return RedisStreamBroker(
        order.url,
        consumer_id="0",
        idle_timeout=5000,
        xread_block=500,
        xread_count=AT_ONCE,
        # Without an end, the lock of a worker that was killed while it held it would stop all others for ever.
        unacknowledged_lock_timeout=2,
    )


def task_of(broker: AsyncBroker, order: Order) -> Any:
    async def numbers(number: int) -> None:
        await order.run_async(number)

    return broker.task(task_name="numbers")(numbers)


def fill(order: Order) -> None:
    async def run() -> None:
        broker = open_broker(order)
        task = task_of(broker, order)
        await broker.startup()
        for number in range(order.count):
            await task.kiq(number)
        await broker.shutdown()

    asyncio.run(run())


def work(order: Order) -> None:
    async def run() -> None:
        broker = open_broker(order)
        task_of(broker, order)
        late = AcknowledgeType.WHEN_EXECUTED
        await run_receiver_task(broker, run_startup=True, max_async_tasks=AT_ONCE, ack_time=late)

    asyncio.run(run())


if __name__ == "__main__":
    main(fill, work)
