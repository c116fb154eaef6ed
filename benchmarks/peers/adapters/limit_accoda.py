"""Accoda: at most so many jobs of a customer at once, by the limit of the lane."""

from __future__ import annotations

from typing import Any

import uvloop
from laned import CHUNK, customer_of
from timed import Jobs, Order, main

from accoda import App, Lanes, Worker, WorkerOptions


def fill(order: Order) -> None:
    async def run() -> None:
        app = App(order.url)
        await app.storage.set_lanes("limited", Lanes(limit=order.options["limit"]))
        jobs = [
            app.new_job(
                "limited", payload, {"lane": customer_of(payload["index"], order.slots, order.options["customers"])}
            )
            for payload in order.payloads()
        ]
        for start in range(0, len(jobs), CHUNK):
            await app.storage.enqueue(jobs[start : start + CHUNK])
        await app.close()

    uvloop.run(run())


def work(order: Order, jobs: Jobs) -> None:
    async def run() -> None:
        app = App(order.url)

        @app.handler("limited", concurrency=order.slots, lanes=order.options["limit"])
        async def limited(payload: dict[str, Any]) -> None:
            await jobs.run_async(payload)

        worker = Worker(app, WorkerOptions(queues=("limited",)))
        await worker.init()
        await worker.run()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
