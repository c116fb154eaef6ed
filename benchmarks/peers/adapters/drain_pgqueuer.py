"""PgQueuer: its queue manager over asyncpg, tables installed as durable."""

from __future__ import annotations

import json

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from tally import PAYLOAD, Order, Tally, main


def fill(order: Order) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(order.url)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        data = json.dumps(PAYLOAD).encode()
        for start in range(0, order.count, 1000):
            here = min(1000, order.count - start)
            await queries.enqueue(["noop"] * here, [data] * here, [0] * here)
        await connection.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(order.url)
        app = PgQueuer(AsyncpgDriver(connection))

        @app.entrypoint("noop")
        async def noop(job: Job) -> None:
            json.loads(job.payload or b"")
            tally.ran()

        await app.run(**order.options)

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
