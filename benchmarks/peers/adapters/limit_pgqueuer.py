"""PgQueuer: an entrypoint for each customer, with its `concurrency_limit`; so the customers are known in the code."""

from __future__ import annotations

import json

import asyncpg
import uvloop
from laned import customer_of
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from timed import CHUNK, Jobs, Order, main

WARM = "warm"


def entrypoint_of(order: Order, index: int) -> str:
    return WARM if index < order.slots else customer_of(index, order.slots, order.options["customers"])


def fill(order: Order) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(order.url)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        await queries.optimize_autovacuum()
        payloads = order.payloads()
        for start in range(0, len(payloads), CHUNK):
            here = payloads[start : start + CHUNK]
            names = [entrypoint_of(order, payload["index"]) for payload in here]
            await queries.enqueue(names, [json.dumps(payload).encode() for payload in here], [0] * len(here))
        await connection.close()

    uvloop.run(run())


def work(order: Order, jobs: Jobs) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(order.url)
        app = PgQueuer(AsyncpgDriver(connection))
        last = order.slots + order.options["customers"]
        for name in dict.fromkeys(entrypoint_of(order, index) for index in range(last)):

            @app.entrypoint(name, concurrency_limit=0 if name == WARM else order.options["limit"])
            async def limited(job: Job) -> None:
                await jobs.run_async(json.loads(job.payload or b""))

        await app.run(max_concurrent_tasks=order.slots * 2, batch_size=order.options["batch_size"])

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
