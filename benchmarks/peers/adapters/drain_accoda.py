"""Accoda: its `Worker`, on any storage."""

from __future__ import annotations

from typing import Any

import uvloop
from tally import PAYLOAD, Order, Tally, main

from accoda import App, Worker, WorkerOptions
from accoda.settings import Settings


def fill(order: Order) -> None:
    async def run() -> None:
        app = App(order.url + order.options.get("query", ""))
        for start in range(0, order.count, 1000):
            await app.enqueue_many("noop", [PAYLOAD] * min(1000, order.count - start))
        await app.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def run() -> None:
        app = App(order.url + order.options.get("query", ""))

        @app.handler("noop", batch=order.options["batch"])
        async def noop(payload: dict[str, Any]) -> None:
            tally.ran()

        # The worker of `accoda worker -c N`.
        settings = Settings.load(environ={}, overrides={"max_processors": order.options["processors"]})
        worker = Worker(app, WorkerOptions(queues=("noop",), burst=True, settings=settings))
        await worker.init()
        await worker.run()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
