"""SAQ at mixed work: `concurrency` is its slots; `def` functions run in its pool of threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import uvloop
from saq import Queue, Worker
from timed import Jobs, Order, main

AT_ONCE = 50


def open_queue(order: Order) -> Queue:
    return Queue.from_url(order.url, dump=orjson.dumps, load=orjson.loads, **order.options.get("queue", {}))


def fill(order: Order) -> None:
    async def run() -> None:
        queue = open_queue(order)
        await queue.connect()
        payloads = order.payloads()
        for start in range(0, len(payloads), AT_ONCE):  # one after another: in the order of the list
            here = payloads[start : start + AT_ONCE]
            # ttl -1: no result is kept
            await asyncio.gather(*(queue.enqueue("mixed", payload=payload, ttl=-1, retries=3) for payload in here))
        await queue.disconnect()

    uvloop.run(run())


def work(order: Order, jobs: Jobs) -> None:
    async def mixed(ctx: Any, *, payload: dict[str, Any]) -> None:
        await jobs.run_async(payload)

    def blocking(ctx: Any, *, payload: dict[str, Any]) -> None:
        jobs.run(payload)

    async def run() -> None:
        queue = open_queue(order)
        await queue.connect()
        functions = [("mixed", mixed if order.how == "async" else blocking)]
        worker: Worker[Any] = Worker(queue, functions=functions, concurrency=order.slots)
        # It makes a pool of as many threads as Python thinks right, on two cores six: fewer than its slots.
        worker.pool = ThreadPoolExecutor(order.slots)
        await worker.start()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
