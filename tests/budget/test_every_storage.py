"""The books on every storage: several writers, each with a connection of its own."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

from accoda.budget import Ask, Books, Budget, Grant, Settlement, Spent, StorageClock
from accoda.model import Head
from accoda.storage.open import open_storage
from accoda.storage.protocol import Storage

SERVERS: dict[str, Any] = {"redis": RedisServer, "postgres": PostgresServer, "tarantool": TarantoolServer}
BUDGETS = {"keepa": Budget("keepa", 20, 1, 86_400), "requests": Budget("requests", 100, 1, 86_400, counts="jobs")}


@pytest.fixture(params=["sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name: str = request.param
    if name == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db"
        return
    server = need(lambda: SERVERS[name]().start())
    try:
        yield server.url
    finally:
        server.stop()


async def itself(store: Storage) -> Storage:
    return store


async def test_writers_that_fight_for_the_document_reserve_exactly_what_there_is(url: str) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(await open_storage(url)) for _ in range(4)]
        writers = []
        for store in stores:
            get = partial(itself, store)
            writers.append(Books(get, BUDGETS, StorageClock(get)))

        async def work(books: Books, queue: str) -> int:
            answer = await books.reserve(Ask(queue, ("requests", "keepa"), 1))
            if not isinstance(answer, Grant):
                return 0
            assert await books.settle(Settlement(answer, Spent(1, 1)))
            return 1

        done = await asyncio.gather(*(work(books, f"q{n}") for books in writers for n in range(8)))
        assert sum(done) == 20
        views = await writers[0].views()
        assert (round(views["keepa"].left, 1), views["keepa"].used_today) == (0, 20)
        assert (round(views["requests"].left, 1), views["requests"].reserved) == (80, 0)
        assert "budgets" not in (await stores[0].stats()).queues  # a look at the clock leaves nothing behind
        at = (await stores[0].look(Head("any"))).at
        assert at - 5000 < views["keepa"].at <= at
