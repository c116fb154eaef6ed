"""taskiq at mixed work: `max_async_tasks` is its slots, `sync_workers` the threads for `def` tasks."""

from __future__ import annotations

from typing import Any

import uvloop
from taskiq import AsyncBroker
from taskiq.api import run_receiver_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListQueueBroker, RedisStreamBroker
from timed import Jobs, Order, main


def open_broker(order: Order) -> AsyncBroker:
    if order.options["broker"] == "list":
        # It waits for a job without end; redis-py would give up after five seconds, and the receiver start anew.
        return ListQueueBroker(order.url, socket_timeout=None).with_serializer(ORJSONSerializer())
    # "0": jobs that were there before the group was, too.
    return RedisStreamBroker(order.url, consumer_id="0").with_serializer(ORJSONSerializer())


def task_of(broker: AsyncBroker, order: Order, jobs: Jobs | None) -> Any:
    async def mixed(payload: dict[str, Any]) -> None:
        assert jobs is not None
        await jobs.run_async(payload)

    def blocking(payload: dict[str, Any]) -> None:
        assert jobs is not None
        jobs.run(payload)

    return broker.task(task_name="mixed")(mixed if order.how == "async" else blocking)


def fill(order: Order) -> None:
    async def run() -> None:
        broker = open_broker(order)
        task = task_of(broker, order, None)
        await broker.startup()
        for payload in order.payloads():
            await task.kiq(payload)
        await broker.shutdown()

    uvloop.run(run())


def work(order: Order, jobs: Jobs) -> None:
    async def run() -> None:
        broker = open_broker(order)
        task_of(broker, order, jobs)
        await run_receiver_task(
            broker, run_startup=True, validate_params=False, max_async_tasks=order.slots, sync_workers=order.slots
        )

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
