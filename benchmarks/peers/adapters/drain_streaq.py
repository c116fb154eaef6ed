"""streaq: its `Worker`, on Redis."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import uvloop
from streaq import Worker
from tally import PAYLOAD, Order, Tally, main


def noop_of(order: Order, tally: Tally | None) -> tuple[Worker[Any], Any]:
    worker: Worker[Any] = Worker(redis_url=order.url, handle_signals=False, **order.options)

    async def noop(payload: dict[str, Any]) -> None:
        assert tally is not None
        tally.ran(payload)

    return worker, worker.task(ttl=0, name="noop", silent=True)(noop)


class Producer:
    def __init__(self, order: Order) -> None:
        self.worker, self.noop = noop_of(order, None)

    async def open(self) -> None:
        await self.worker.__aenter__()

    async def one(self, payload: dict[str, Any]) -> None:
        await self.noop.enqueue(payload)

    async def many(self, payloads: list[dict[str, Any]]) -> None:
        await self.worker.enqueue_many([self.noop.enqueue(payload) for payload in payloads])

    async def later(self, payload: dict[str, Any], seconds: float) -> None:
        await self.noop.enqueue(payload).start(delay=timedelta(seconds=seconds))

    async def close(self) -> None:
        await self.worker.__aexit__(None, None, None)


def fill(order: Order) -> None:
    async def run() -> None:
        producer = Producer(order)
        await producer.open()
        for start in range(0, order.count, 1000):
            await producer.many([PAYLOAD] * min(1000, order.count - start))
        await producer.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def run() -> None:
        worker, _ = noop_of(order, tally)
        await worker.run_async()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work, Producer)
