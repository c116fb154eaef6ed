"""PgQueuer under fire: a job without a heartbeat for three seconds is picked again."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
from diary import AT_ONCE, Order, main
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries


def fill(order: Order) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(order.url)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        numbers: list[bytes | None] = [b"%d" % number for number in range(order.count)]
        await queries.enqueue(["numbers"] * order.count, numbers, [0] * order.count)
        await connection.close()

    asyncio.run(run())


def work(order: Order) -> None:
    async def run() -> None:
        app = PgQueuer(AsyncpgDriver(await asyncpg.connect(order.url)))

        @app.entrypoint("numbers")
        async def numbers(job: Job) -> None:
            await order.run_async(int(job.payload or b""))

        # It wants room for two batches. `dequeue_timeout`: how long it sleeps when only the jobs of the dead are left.
        await app.run(
            batch_size=AT_ONCE // 2,
            max_concurrent_tasks=AT_ONCE,
            heartbeat_timeout=timedelta(seconds=3),
            dequeue_timeout=timedelta(seconds=1),
        )

    asyncio.run(run())


if __name__ == "__main__":
    main(fill, work)
