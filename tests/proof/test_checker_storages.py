"""Real storages break no rule while several clients use several handles at once."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proof.checker import CallLog, MemorySink, Recorder, check, final_state
from proof.checker.trial import Client, Pace, administer, produce, work
from proof.servers.postgres import PostgresServer
from proof.servers.process import Process
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

from accoda import Store, open_storage

SERVERS: dict[str, Callable[[], Process]] = {
    "redis": RedisServer,
    "postgres": lambda: PostgresServer(durable=False),
    "tarantool": TarantoolServer,
}
PACE = Pace(rest=asyncio.sleep, scale=0.02)  # a lease of two seconds is over after 40 ms
CALLS = 40


@pytest.fixture(params=["sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/q.db"
        return
    with need(SERVERS[request.param]) as server:
        running: Any = server
        yield running.url


async def use(one: Store, two: Store) -> None:
    sink = MemorySink()

    def client(name: str, store: Store, seed: int) -> Client:
        return Client(Recorder(name, sink), store, PACE, seed)

    await asyncio.gather(
        produce(client("p1", one, 1), CALLS),
        produce(client("p2", two, 2), CALLS),
        administer(client("admin", two, 3), CALLS),
        *(work(client(f"w{n}", (one, two)[n % 2], 4 + n), CALLS) for n in range(4)),
    )
    verdict = check(CallLog.of(sink), await final_state(one))
    assert verdict.ok, str(verdict)
    assert verdict.counts["leases"] > verdict.counts["done"] > 50


async def test_memory() -> None:
    async with await open_storage("memory://") as store:
        await use(store, store)


async def test_two_handles_on_one_store(url: str) -> None:
    async with await open_storage(url) as one, await open_storage(url) as two:
        await use(one, two)
