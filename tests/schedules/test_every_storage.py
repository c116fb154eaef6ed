"""Schedules on every storage, on the real server: what the storages promise is what exactly-once stands on."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer
from proof.servers.tarantool import TarantoolServer
from schedule_env import every

from accoda import App, NewJob
from accoda.envelope import unwrap
from accoda.model import Done, Head
from accoda.schedules import QUEUE, Scheduler, create, delete, get, list_all, pause, put, resume
from accoda.schedules.scheduler import decide
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store

SERVERS: dict[str, Any] = {
    "redis": RedisServer,
    "redis-cluster": ClusterSet,
    "postgres": PostgresServer,
    "tarantool": TarantoolServer,
}
make_job = App("memory://").new_job


@pytest.fixture(scope="module", params=["sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name: str = request.param
    if name == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db"
        return
    server = need(lambda: SERVERS[name]().start())
    try:
        yield server.url
    finally:
        server.close()


async def ticks_in(store: Store, queue: str) -> list[int]:
    return sorted(unwrap(job.data)[0].tick or 0 for job in await store.browse(queue, "ready", limit=500))


async def until_ended(store: Store, name: str) -> None:
    async with asyncio.timeout(30):
        while (await get(store, name)).state == "active":
            await asyncio.sleep(0.05)


async def test_several_schedulers_give_each_tick_one_job(url: str) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(await open_storage(url)) for _ in range(3)]
        first = (await stores[0].look(Head("ticks"))).at + 300
        begin = datetime.fromtimestamp(first / 1000, UTC)
        schedule = every(0.1, queue="ticks", starts_at=begin, ends_at=begin + timedelta(seconds=0.9), catch_up="all")
        await create(stores[0], schedule)
        running = [asyncio.create_task(Scheduler(make_job, f"s{n}").run(store)) for n, store in enumerate(stores)]
        try:
            await until_ended(stores[0], "report")
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        expected = [first + number * 100 for number in range(10)]
        async with asyncio.timeout(10):
            while len(await ticks_in(stores[0], "ticks")) < 10:  # on a cluster they come by way of the outbox
                await asyncio.sleep(0.05)
        assert await ticks_in(stores[0], "ticks") == expected
        assert (await get(stores[0], "report")).state == "ended"
        assert await delete(stores[0], "report") and await list_all(stores[0]) == []


async def test_changes_and_deletes_meet_a_running_tick(url: str) -> None:
    async with await open_storage(url) as store:
        before = await create(store, every(0.1, name="racing", payload="old", catch_up="all"))
        await asyncio.sleep(0.15)
        (running,) = await store.take(QUEUE, 10, lease=30)
        changed = await put(store, every(0.1, name="racing", payload="new", catch_up="all"))
        assert (changed.id, changed.next_at) == (before.id, before.next_at)  # what `change` stands on: the id stays
        late = decide(running, (await store.look(Head(QUEUE))).at, make_job)
        assert isinstance(late, Done) and [one.why for one in await store.settle([late])] == ["lost"]
        assert (await pause(store, "racing")).state == "paused"
        assert await Scheduler(make_job).run_once(store) == 0
        now = (await store.look(Head(QUEUE))).at
        resumed = await resume(store, "racing")
        assert resumed.next_at is not None and resumed.next_at > now
        await asyncio.sleep(0.15)
        (running,) = await store.take(QUEUE, 10, lease=30)
        assert await delete(store, "racing") and not await delete(store, "racing")
        assert await store.settle([decide(running, (await store.look(Head(QUEUE))).at, make_job)]) != []
        assert await list_all(store) == []


async def test_a_damaged_schedule_is_buried_listed_and_deleted(url: str) -> None:
    async with await open_storage(url) as store:
        await store.enqueue([NewJob(QUEUE, b"\xc1?", key="damaged")])
        assert await Scheduler(make_job).run_once(store) == 1
        (view,) = await list_all(store)
        assert (view.name, view.state) == ("damaged", "broken") and "delete it" in str(view.problem)
        assert (await get(store, "damaged")).state == "broken"
        assert await delete(store, "damaged") and await list_all(store) == []
