"""streaq: its `Worker`, on Redis."""

from __future__ import annotations

from typing import Any

import uvloop
from streaq import Worker
from tally import PAYLOAD, Order, Tally, main


def noop_of(order: Order, tally: Tally | None) -> tuple[Worker[Any], Any]:
    worker: Worker[Any] = Worker(redis_url=order.url, handle_signals=False, **order.options)

    async def noop(payload: dict[str, Any]) -> None:
        assert tally is not None
        tally.ran()

    return worker, worker.task(noop, ttl=0, name="noop")


def fill(order: Order) -> None:
    async def run() -> None:
        worker, noop = noop_of(order, None)
        async with worker:
            for start in range(0, order.count, 1000):
                here = min(1000, order.count - start)
                await worker.enqueue_many([noop.enqueue(PAYLOAD) for _ in range(here)])

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def run() -> None:
        worker, _ = noop_of(order, tally)
        await worker.run_async()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
