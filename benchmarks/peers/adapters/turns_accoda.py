"""Accoda: many jobs of one customer, then one of each of others; at which start the others have all started.

Each worker has an app and a connection of its own, except on the memory storage, which is one store for each
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import uvloop
from laned import CHUNK, Order, Starts, await_start, say

from accoda import App, Lanes, Worker, WorkerOptions


def open_app(order: Order, starts: Starts, lengths: Iterator[float], shared: App | None) -> App:
    app = App(order.url)
    if shared is not None:
        app.connections = shared.connections
    rules = Lanes(fair=True) if order.fair else None

    @app.handler("fair", concurrency=order.slots, lanes=rules)
    async def fair(payload: dict[str, Any]) -> None:
        starts.started(payload["customer"])
        await asyncio.sleep(next(lengths))

    return app


async def enqueue(app: App, order: Order) -> None:
    if order.fair:
        await app.storage.set_lanes("fair", Lanes(fair=True))
    jobs = [
        app.new_job("fair", {"customer": customer}, {"lane": customer} if order.fair else {})
        for customer in order.customers()
    ]
    for start in range(0, len(jobs), CHUNK):
        await app.storage.enqueue(jobs[start : start + CHUNK])


async def run(order: Order) -> None:
    starts, lengths = Starts(order.others), order.lengths()
    first = open_app(order, starts, lengths, None)
    shared = first if order.url.startswith("memory:") else None
    apps = [first, *(open_app(order, starts, lengths, shared) for _ in range(order.workers - 1))]
    await enqueue(first, order)
    await_start()
    workers = [Worker(app, WorkerOptions(queues=("fair",))) for app in apps]
    for worker in workers:
        await worker.init()
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await asyncio.to_thread(starts.complete.wait)
    say(starts.found())
    await asyncio.gather(*running)  # the harness ends them


if __name__ == "__main__":
    uvloop.run(run(Order.read()))
