"""taskiq: its receiver in one process, over a Redis list or a Redis stream."""

from __future__ import annotations

import multiprocessing
from datetime import UTC, datetime, timedelta
from typing import Any

import uvloop
from tally import PAYLOAD, Order, Tally, main
from taskiq import AsyncBroker, TaskiqScheduler
from taskiq.api import run_receiver_task, run_scheduler_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListQueueBroker, ListRedisScheduleSource, RedisStreamBroker

SHORTEST = timedelta(seconds=1)  # its scheduler's loop cuts moments to whole seconds: below this it would spin


def open_broker(order: Order) -> AsyncBroker:
    if order.options["broker"] == "list":
        # It waits for a job without end; redis-py would give up after five seconds, and the receiver start anew.
        return ListQueueBroker(order.url, socket_timeout=None).with_serializer(ORJSONSerializer())
    # "0": jobs that were there before the group was, too.
    stream = RedisStreamBroker(order.url, consumer_id="0", **order.options.get("stream", {}))
    return stream.with_serializer(ORJSONSerializer())


def noop_of(broker: AsyncBroker, tally: Tally | None) -> Any:
    async def noop(payload: dict[str, Any]) -> None:
        assert tally is not None
        tally.ran(payload)

    return broker.task(task_name="noop")(noop)


class Producer:
    def __init__(self, order: Order) -> None:
        self.broker = open_broker(order)
        self.noop = noop_of(self.broker, None)
        self.source = open_source(order)

    async def open(self) -> None:
        await self.broker.startup()

    async def one(self, payload: dict[str, Any]) -> None:
        await self.noop.kiq(payload)

    async def later(self, payload: dict[str, Any], seconds: float) -> None:
        await self.noop.schedule_by_time(self.source, datetime.now(UTC) + timedelta(seconds=seconds), payload)

    async def close(self) -> None:
        await self.source.shutdown()
        await self.broker.shutdown()


def open_source(order: Order) -> ListRedisScheduleSource:
    return ListRedisScheduleSource(order.url, serializer=ORJSONSerializer())


def schedule(order: Order) -> None:
    """What `taskiq scheduler` runs, with the shortest intervals that it can keep."""
    broker = open_broker(order)
    noop_of(broker, None)

    async def run() -> None:
        scheduler = TaskiqScheduler(broker, [open_source(order)])
        await run_scheduler_task(scheduler, run_startup=True, interval=SHORTEST, loop_interval=SHORTEST)

    uvloop.run(run())


def fill(order: Order) -> None:
    async def run() -> None:
        producer = Producer(order)
        await producer.open()
        for _ in range(order.count):
            await producer.one(PAYLOAD)
        await producer.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    if order.measure == "delayed":  # its documentation runs the scheduler as one process of its own
        multiprocessing.get_context("spawn").Process(target=schedule, args=(order,), daemon=True).start()

    async def run() -> None:
        broker = open_broker(order)
        noop_of(broker, tally)
        await run_receiver_task(broker, run_startup=True, **order.options["receiver"])

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work, Producer)
