"""Crashes and fresh starts in Redis: no cost for ordinary jobs, nothing left behind, jobs of older versions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from accoda import Bury, Done, Job, JobInfo, ManualClock, NewJob, Retry, open_storage
from accoda.storage.protocol import Store
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import RedisServer

Q = "q"
BASE = "accoda:{q}:q"
AFRESH = f"{BASE}:afresh"
NOW = 1_800_000_000_000
CLOCK = ManualClock(NOW)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with need(RedisServer) as server:
        yield server


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url, clock=CLOCK) as store:
        yield store


def past(job: Job | JobInfo | None) -> tuple[int, int, int]:
    assert job is not None
    return job.attempts, job.fresh_at, job.crashes


async def take(store: Store) -> Job:
    (job,) = await store.take(Q, 1, lease=5)
    return job


async def crash(store: Store) -> None:
    await store.take(Q, 10, lease=5)
    CLOCK.advance(5)
    await store.stats()


async def test_an_ordinary_job_writes_nothing_of_it(store: Store, server: RedisServer) -> None:
    replacing = NewJob(Q, key="k", on_duplicate="replace")
    await store.enqueue([NewJob(Q), replacing, replacing])
    await store.settle([Retry(job.lease) for job in await store.take(Q, 2)])
    assert server.ask("EXISTS", AFRESH) == 0
    await store.settle([Done(job.lease) for job in await store.take(Q, 2)])
    left = set(server.ask("KEYS", "accoda:*")) - {"accoda:layout", "accoda:ids", "accoda:queues", f"{BASE}:meta"}
    assert {key for key in left if not key.startswith("accoda:calls:")} == set()


@pytest.mark.parametrize("how", ["done", "kept", "removed", "purged"])
async def test_the_end_of_a_job_leaves_nothing_behind(store: Store, server: RedisServer, how: str) -> None:
    (answer,) = await store.enqueue([NewJob(Q, keep_for=60 if how == "kept" else 0)])
    await crash(store)
    assert server.ask("HGETALL", AFRESH) == [f"{answer.id:016d}", "0,1"]
    if how in ("done", "kept"):
        await store.settle([Done((await take(store)).lease)])
        CLOCK.advance(60)
        await store.stats()
    elif how == "removed":
        assert await store.remove([answer.id]) == 1
    else:
        await store.settle([Bury((await take(store)).lease, "broken")])
        assert await store.purge(Q, "dead") == 1
    assert server.ask("EXISTS", AFRESH, f"{BASE}:notes") == 0


async def test_the_jobs_of_an_older_version_are_read_with_zeros_and_count_from_there(
    store: Store, server: RedisServer
) -> None:
    # As the version before left them: one that was retried twice, one whose worker crashed, one that was buried.
    tail = f",{NOW - 90},{NOW - 50},{NOW - 90},,,\0old"
    server.ask("SADD", "accoda:queues", Q)
    server.ask("HSET", "accoda:ids", "last", 3)
    server.ask("ZADD", f"{BASE}:ready", 0, f"0000000000000001x2{tail}", 0, f"0000000000000002x1{tail}")
    server.ask("HSET", f"{BASE}:ready:ids:00000000000000", "01", 0, "02", 0)
    server.ask("ZADD", f"{BASE}:ready:ids", 0, "00000000000000")
    server.ask("ZADD", f"{BASE}:dead", 3, f"0,0000000000000003x4{tail}")
    server.ask("HSET", f"{BASE}:notes", "0000000000000001", f"=w\0{NOW - 60}\0\0=why\0")
    server.ask("HSET", f"{BASE}:notes", "0000000000000003", f"=w\0{NOW - 60}\0{NOW - 55}\0=why\0")

    assert [past(await store.find(id)) for id in (1, 2, 3)] == [(2, 0, 0), (1, 0, 0), (4, 0, 0)]
    assert await store.revive([3]) == 1
    assert [past(job) for job in await store.take(Q, 3, lease=5)] == [(2, 0, 0), (1, 0, 0), (5, 5, 0)]
    CLOCK.advance(5)
    assert [past(job) for job in await store.take(Q, 3)] == [(3, 0, 1), (2, 0, 1), (6, 5, 1)]


async def test_more_crashes_than_one_command_can_carry_are_all_counted(store: Store) -> None:
    many = 9000
    await store.enqueue([NewJob(Q)] * many)
    await store.take(Q, many, lease=5)
    CLOCK.advance(5)
    jobs = [job for _ in range(9) for job in await store.take(Q, many)]  # a thousand with each call
    assert {past(job) for job in jobs} == {(1, 0, 1)}
    assert len(jobs) == many
