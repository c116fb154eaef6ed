"""Procrastinate: its `lock` lets one job run at a time, so the jobs of a customer share `limit` locks in turn."""

from __future__ import annotations

from typing import Any

import uvloop
from laned import customer_of
from procrastinate import App, PsycopgConnector
from timed import Jobs, Order, main


def lock_of(order: Order, index: int) -> str | None:
    if index < order.slots:
        return None
    customers = order.options["customers"]
    turn = (index - order.slots) // customers
    return f"{customer_of(index, order.slots, customers)}/{turn % order.options['limit']}"


def open_app(order: Order) -> App:
    return App(connector=PsycopgConnector(conninfo=order.url, **order.options["pool"]))


def fill(order: Order) -> None:
    async def run() -> None:
        app = open_app(order)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            for payload in order.payloads():
                lock = lock_of(order, payload["index"])
                await app.configure_task("limited", lock=lock).defer_async(payload=payload)

    uvloop.run(run())


def work(order: Order, jobs: Jobs) -> None:
    app = open_app(order)

    @app.task(name="limited")
    async def limited(payload: dict[str, Any]) -> None:
        await jobs.run_async(payload)

    async def run() -> None:
        async with app.open_async():
            await app.run_worker_async(
                concurrency=order.slots, install_signal_handlers=False, **order.options["worker"]
            )

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
