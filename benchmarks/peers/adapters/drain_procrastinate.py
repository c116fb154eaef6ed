"""Procrastinate: its worker over psycopg's pool."""

from __future__ import annotations

from typing import Any

import uvloop
from procrastinate import App, PsycopgConnector
from tally import PAYLOAD, Order, Tally, main


def open_app(order: Order) -> App:
    return App(connector=PsycopgConnector(conninfo=order.url, **order.options.get("pool", {})))


def fill(order: Order) -> None:
    async def run() -> None:
        app = open_app(order)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            noop = app.configure_task("noop")
            for start in range(0, order.count, 500):
                here = min(500, order.count - start)
                await noop.batch_defer_async(*[{"payload": PAYLOAD}] * here)

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def run() -> None:
        app = open_app(order)

        @app.task(name="noop")
        async def noop(payload: dict[str, Any]) -> None:
            tally.ran()

        async with app.open_async():
            await app.run_worker_async(install_signal_handlers=False, **order.options["worker"])

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
