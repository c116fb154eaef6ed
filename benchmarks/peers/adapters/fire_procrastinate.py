"""Procrastinate under fire, with the periodic task that its documentation gives for stalled jobs, every minute."""

from __future__ import annotations

import asyncio

from diary import AT_ONCE, Order, main
from procrastinate import App, PsycopgConnector


def fill(order: Order) -> None:
    async def run() -> None:
        app = App(connector=PsycopgConnector(conninfo=order.url))
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            task = app.configure_task("numbers")
            for start in range(0, order.count, 500):
                last = min(start + 500, order.count)
                await task.batch_defer_async(*[{"number": number} for number in range(start, last)])

    asyncio.run(run())


def work(order: Order) -> None:
    app = App(connector=PsycopgConnector(conninfo=order.url))

    @app.task(name="numbers")
    async def numbers(number: int) -> None:
        await order.run_async(number)

    @app.periodic(cron="* * * * *")
    @app.task(queueing_lock="retry_stalled_jobs", name="retry_stalled_jobs", pass_context=True)
    async def retry_stalled_jobs(context: object, timestamp: int) -> None:
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=5):
            await app.job_manager.retry_job(job)

    async def run() -> None:
        async with app.open_async():
            await app.run_worker_async(
                concurrency=AT_ONCE,
                install_signal_handlers=False,
                update_heartbeat_interval=1,
                stalled_worker_timeout=5,
            )

    asyncio.run(run())


if __name__ == "__main__":
    main(fill, work)
