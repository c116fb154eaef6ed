"""Accoda under fire: leases of two seconds."""

from __future__ import annotations

import uvloop
from diary import AT_ONCE, Order, main

from accoda import App, Worker, WorkerOptions
from accoda.settings import Settings


def fill(order: Order) -> None:
    app = App(order.url)
    app.sync.enqueue_many("numbers", range(order.count))


def work(order: Order) -> None:
    app = App(order.url)

    @app.handler("numbers", lease=2, batch=1)
    async def numbers(number: int) -> None:
        await order.run_async(number)

    settings = Settings.load(environ={}, overrides={"max_processors": AT_ONCE})
    uvloop.run(Worker(app, WorkerOptions(settings=settings)).run())


if __name__ == "__main__":
    main(fill, work)
