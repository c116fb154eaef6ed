"""The bare engine: Accoda's own scripts and tables, through the leanest client; no handler, no records, no settings.

It is the ceiling for any queue that keeps the same promises on this server. In a drain each lane takes a batch and
settles it, again and again; several lanes have a connection each, so that the server always has a command to do while
another lane reads. An idle one waits for a job (`benchmarks.raw.idle`).
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import msgspec
from benchmarks.raw.idle import PostgresWay, RedisWay, SqliteWay, TarantoolWay, Way
from benchmarks.raw.shape import Raw
from driving import run_loop
from tally import PAYLOAD, Order, Tally, main

from accoda import open_storage

CHUNK = 1000
QUEUE = "noop"
Open = Callable[[], Awaitable[Raw]]


def fill(order: Order) -> None:
    """For a drain nothing: the worker fills, since the bare SQLite makes its tables where it opens them."""
    if order.measure != "drain":
        run_loop(put_some(order))


async def put_some(order: Order) -> None:
    await (await open_storage(order.url)).close()  # makes the tables
    producer = Producer(order)
    await producer.open()
    for _ in range(order.count):
        await producer.one(PAYLOAD)


class Producer:
    """Of single jobs."""

    def __init__(self, order: Order) -> None:
        self._order = order

    async def open(self) -> None:
        self._way = await way_of(self._order)

    async def one(self, payload: dict[str, Any]) -> None:
        await self._way.put(msgspec.json.encode(payload))


async def way_of(order: Order) -> Way:
    if order.url.startswith("postgresql:"):
        return await PostgresWay.open(order.url, QUEUE)
    if order.url.startswith("tarantool:"):
        return TarantoolWay(order.url, QUEUE)
    if order.url.startswith("sqlite:"):
        return SqliteWay(Path(order.path))
    return RedisWay(port_of(order), QUEUE)


def port_of(order: Order) -> int:
    port = urlsplit(order.url).port
    assert port is not None
    return port


async def idle(order: Order, tally: Tally) -> None:
    await (await way_of(order)).work(lambda data: tally.ran(msgspec.json.decode(data)))


def work(order: Order, tally: Tally) -> None:
    if order.measure != "drain":
        run_loop(idle(order, tally))
    elif order.url.startswith("redis:"):
        asyncio.run(put_in(order, redis_of(order)))
        lanes = [
            threading.Thread(target=lambda: asyncio.run(lane(order, redis_of(order), tally)))
            for _ in range(order.options["lanes"])
        ]
        for each in lanes:
            each.start()
    elif order.url.startswith("postgresql:"):
        asyncio.run(work_postgres(order, tally))
    elif order.url.startswith("tarantool:"):
        asyncio.run(work_tarantool(order, tally))
    else:
        asyncio.run(work_sqlite(order, tally))


def redis_of(order: Order) -> Open:
    async def open_raw() -> Raw:
        from benchmarks.raw.redis import RawRedis

        return RawRedis(port_of(order), QUEUE, 1)

    return open_raw


async def work_postgres(order: Order, tally: Tally) -> None:
    import asyncpg  # type: ignore[import-untyped]
    from benchmarks.raw.postgres import RawPostgres

    await (await open_storage(order.url)).close()  # makes the tables

    async def open_raw() -> Raw:
        return await RawPostgres.open(order.url, QUEUE, 1)

    await put_in(order, open_raw)
    connection = await asyncpg.connect(order.url)
    await connection.execute("VACUUM ANALYZE")  # as for all others
    await connection.execute("CHECKPOINT")
    await asyncio.gather(*(lane(order, open_raw, tally) for _ in range(order.options["lanes"])))


async def work_tarantool(order: Order, tally: Tally) -> None:
    from benchmarks.raw.tarantool import RawTarantool

    await (await open_storage(order.url)).close()  # installs the functions
    raw = RawTarantool(order.url, QUEUE, 1)

    async def same() -> Raw:
        return raw

    await put_in(order, same)
    await lane(order, same, tally)


async def work_sqlite(order: Order, tally: Tally) -> None:
    from benchmarks.raw.local import RawSqlite

    raw = RawSqlite(Path(order.path), 1)

    async def same() -> Raw:
        return raw

    await put_in(order, same)
    await lane(order, same, tally)


async def put_in(order: Order, open_raw: Open) -> None:
    raw = await open_raw()
    for start in range(0, order.count, CHUNK):
        await raw.enqueue(min(CHUNK, order.count - start))


async def lane(order: Order, open_raw: Open, tally: Tally) -> None:
    raw = await open_raw()
    while leases := await raw.take(order.options["batch"]):
        tally.ran_many(len(leases))
        await raw.settle(leases)


if __name__ == "__main__":
    main(fill, work, Producer)
