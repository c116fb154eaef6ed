"""Procrastinate: its worker over psycopg's pool, with the periodic task that its guide gives for stalled jobs."""

from __future__ import annotations

from typing import Any

import uvloop
from procrastinate import App, PsycopgConnector
from tally import PAYLOAD, Order, Tally, main

AT_ONCE = 1000


def open_app(order: Order) -> App:
    return App(connector=PsycopgConnector(conninfo=order.url, **order.options.get("pool", {})))


def fill(order: Order) -> None:
    async def run() -> None:
        app = open_app(order)
        async with app.open_async():
            if not await app.check_connection_async():  # whether its tables are there
                await app.schema_manager.apply_schema_async()
            noop = app.configure_task("noop")
            for start in range(0, order.count, AT_ONCE):
                here = min(AT_ONCE, order.count - start)
                await noop.batch_defer_async(*[{"payload": PAYLOAD}] * here)

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    app = open_app(order)

    @app.task(name="noop")
    async def noop(payload: dict[str, Any]) -> None:
        tally.ran(payload)

    @app.periodic(cron="* * * * *")
    @app.task(queueing_lock="retry_stalled_jobs", name="retry_stalled_jobs", pass_context=True)
    async def retry_stalled_jobs(context: object, timestamp: int) -> None:
        for job in await app.job_manager.get_stalled_jobs():
            await app.job_manager.retry_job(job)

    async def run() -> None:
        async with app.open_async():
            await app.run_worker_async(install_signal_handlers=False, **order.options["worker"])

    uvloop.run(run())


class Producer:
    def __init__(self, order: Order) -> None:
        self._app = open_app(order)
        self._noop = self._app.configure_task("noop")

    async def open(self) -> None:
        await self._app.open_async()

    async def one(self, payload: dict[str, Any]) -> None:
        await self._noop.defer_async(payload=payload)

    async def many(self, payloads: list[dict[str, Any]]) -> None:
        await self._noop.batch_defer_async(*[{"payload": payload} for payload in payloads])

    async def later(self, payload: dict[str, Any], seconds: float) -> None:
        # Microseconds: `schedule_in` takes whole numbers of each unit.
        due = self._app.configure_task("noop", schedule_in={"microseconds": round(seconds * 1e6)})
        await due.defer_async(payload=payload)

    async def close(self) -> None:
        await self._app.close_async()


if __name__ == "__main__":
    main(fill, work, Producer)
