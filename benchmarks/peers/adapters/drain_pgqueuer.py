"""PgQueuer: its queue manager over one asyncpg connection, with the vacuum settings that its guide recommends."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment
from pgqueuer.domain.settings import DBSettings, Durability
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from tally import PAYLOAD, Order, Tally, main

AT_ONCE = 1000


async def install(driver: AsyncpgDriver, durability: str) -> None:
    """What `pgq install --durability …` and `pgq autovac` do."""
    settings = DBSettings(durability=Durability(durability))
    queries = Queries(driver, qbe=QueryBuilderEnvironment(settings))
    if not await queries.schema_is_installed():
        await queries.install()
        await queries.optimize_autovacuum()


def fill(order: Order) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(order.url)
        driver = AsyncpgDriver(connection)
        await install(driver, order.options.get("durability", "durable"))
        queries = Queries(driver)
        data = json.dumps(PAYLOAD).encode()
        for start in range(0, order.count, AT_ONCE):
            here = min(AT_ONCE, order.count - start)
            await queries.enqueue(["noop"] * here, [data] * here, [0] * here)
        await connection.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(order.url)
        app = PgQueuer(AsyncpgDriver(connection))

        @app.entrypoint("noop")
        async def noop(job: Job) -> None:
            tally.ran(json.loads(job.payload or b""))

        beat = timedelta(seconds=order.options.get("heartbeat", 30))
        await app.run(batch_size=order.options["batch_size"], heartbeat_timeout=beat)

    uvloop.run(run())


class Producer:
    """One connection for one caller; the pool that its documentation recommends where many call at once."""

    def __init__(self, order: Order) -> None:
        self._order = order

    async def open(self) -> None:
        if self._order.measure == "callers":
            self._source: Any = await asyncpg.create_pool(self._order.url, min_size=5, max_size=20)
            self._queries = Queries(AsyncpgPoolDriver(self._source))
        else:
            self._source = await asyncpg.connect(self._order.url)
            self._queries = Queries(AsyncpgDriver(self._source))

    async def one(self, payload: dict[str, Any]) -> None:
        await self._queries.enqueue("noop", json.dumps(payload).encode())

    async def many(self, payloads: list[dict[str, Any]]) -> None:
        data: list[bytes | None] = [json.dumps(payload).encode() for payload in payloads]
        await self._queries.enqueue(["noop"] * len(data), data, [0] * len(data))

    async def later(self, payload: dict[str, Any], seconds: float) -> None:
        await self._queries.enqueue("noop", json.dumps(payload).encode(), execute_after=timedelta(seconds=seconds))

    async def close(self) -> None:
        await self._source.close()


if __name__ == "__main__":
    main(fill, work, Producer)
