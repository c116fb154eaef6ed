"""taskiq: its receiver in one process, over a Redis list or a Redis stream."""

from __future__ import annotations

from typing import Any

import uvloop
from tally import PAYLOAD, Order, Tally, main
from taskiq import AsyncBroker
from taskiq.api import run_receiver_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListQueueBroker, RedisStreamBroker


def open_broker(order: Order) -> AsyncBroker:
    if order.options["broker"] == "list":
        return ListQueueBroker(order.url).with_serializer(ORJSONSerializer())
    # "0": jobs that were there before the group was, too.
    return RedisStreamBroker(order.url, consumer_id="0").with_serializer(ORJSONSerializer())


def noop_of(broker: AsyncBroker, tally: Tally | None) -> Any:
    async def noop(payload: dict[str, Any]) -> None:
        assert tally is not None
        tally.ran()

    return broker.task(task_name="noop")(noop)


def fill(order: Order) -> None:
    async def run() -> None:
        broker = open_broker(order)
        noop = noop_of(broker, None)
        await broker.startup()
        for _ in range(order.count):
            await noop.kiq(PAYLOAD)
        await broker.shutdown()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def run() -> None:
        broker = open_broker(order)
        noop_of(broker, tally)
        await run_receiver_task(broker, run_startup=True, **order.options["receiver"])

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
