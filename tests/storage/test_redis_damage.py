"""Damaged records in Redis stop nobody and end as dead letters. Keys of another type stop their own queue only."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from random import Random

import pytest
import pytest_asyncio

from accoda import Bury, Done, JobInfo, ManualClock, NewJob, open_storage
from accoda.errors import SchemaMismatch, StorageError
from accoda.storage.protocol import Store
from accoda.testing.damage.survival import REASON, survive
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import RedisServer

Q = "q"
BASE = "accoda:{q}:q"
NOW = 1_800_000_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with need(RedisServer) as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest_asyncio.fixture
async def store(server: RedisServer, clock: ManualClock) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url, clock=clock) as store:
        yield store


async def dead(store: Store) -> list[JobInfo]:
    return await store.browse(Q, "dead")


@pytest.mark.parametrize("seed", range(3))
async def test_thousands_of_damaged_records_lose_no_good_job_and_raise_nothing(
    store: Store, clock: ManualClock, seed: int
) -> None:
    spoiled, left = await survive(store, clock, Random(seed), 1200)
    assert spoiled > 800
    assert len([job for job in left if (job.reason or "").startswith(REASON)]) > 400


DAMAGED = [
    b"",
    b"garbage",
    b"\x93\x01\x02\x03",
    b"0000000000000007",
    b"0000000000000007p0,18000",
    b"0000000000000007p0,1800000000000,,,,,no end",
    b"0000000000000007p0,1800000000o00,,,,,\0digits",
    b"00000000 0000007p0,1800000000000,,,,,\0digits",
    b"0000000000000007x0,1800000000000,,,,nan,\0keep",
    b"0000000000000007x" + b"9" * 5000 + b",1800000000000,,,,,\0attempts",
]


@pytest.mark.parametrize("record", DAMAGED)
async def test_a_ready_record_that_cannot_be_read_is_dead_and_the_next_is_given(
    store: Store, server: RedisServer, record: bytes
) -> None:
    await store.enqueue([NewJob(Q, b"good")])
    text = record.decode("utf-8", "surrogateescape")
    server.ask("ZADD", f"{BASE}:ready", -5, text.encode("utf-8", "surrogateescape"))  # type: ignore[arg-type]
    jobs = await store.take(Q, 1) or await store.take(Q, 1)
    assert [job.data for job in jobs] == [b"good"]
    (job,) = await dead(store)
    assert job.data == record
    assert job.reason is not None and job.reason.startswith(REASON)
    assert job.ended_at == NOW
    assert (await store.stats()).queues[Q].dead == 1
    assert await store.remove([job.id]) == 1
    assert server.ask("EXISTS", f"{BASE}:dead", f"{BASE}:dead:at", f"{BASE}:notes") == 0


@pytest.mark.parametrize("record", DAMAGED)
async def test_a_look_sets_aside_what_cannot_be_read_and_shows_the_next(
    store: Store, server: RedisServer, record: bytes
) -> None:
    (answer,) = await store.enqueue([NewJob(Q, b"good")])
    text = record.decode("utf-8", "surrogateescape")
    server.ask("ZADD", f"{BASE}:ready", -5, text.encode("utf-8", "surrogateescape"))  # type: ignore[arg-type]
    seen = await store.peek(Q)
    assert seen.job is not None
    assert seen.job.id == answer.id
    (job,) = await dead(store)
    assert job.data == record
    assert job.reason is not None and job.reason.startswith(REASON)


@pytest.mark.parametrize("holder", ["no id", f"{77:016d}", f"{1:016d}"])
async def test_a_look_at_a_key_whose_holder_cannot_be_read_shows_nobody(
    store: Store, server: RedisServer, holder: str
) -> None:
    server.ask("ZADD", f"{BASE}:ready", 0, f"{1:016d}x0,180000o,,,,,k\0no moment")
    server.ask("HSET", f"{BASE}:ready:ids:{1:016d}"[:-2], "01", "0")
    server.ask("HSET", f"{BASE}:keys", "k", holder)
    server.ask("SADD", "accoda:queues", Q)
    assert (await store.peek(Q, "k", after=0)).job is None
    assert not await store.drop(Q, 1, 0)
    (answer,) = await store.enqueue([NewJob(Q, key="k", on_duplicate="attach", waiter=b"w")])
    assert answer.what == "created"
    assert [job.state for job in await dead(store)] == ["dead"]


async def test_waiters_of_another_type_are_none(store: Store, server: RedisServer) -> None:
    (answer,) = await store.enqueue([NewJob(Q, key="k")])
    server.ask("SET", f"{BASE}:waiters:{answer.id:016d}", "something else")
    seen = await store.peek(Q, "k", after=0)
    assert seen.job is not None
    assert (seen.job.waiters, seen.waiters) == (0, ())
    assert await store.drop(Q, answer.id, 0)


async def test_a_second_record_with_the_id_of_a_job_is_not_the_job(store: Store, server: RedisServer) -> None:
    (answer,) = await store.enqueue([NewJob(Q, b"good")])
    for other in ("other", "another"):
        server.ask("ZADD", f"{BASE}:ready", 7, f"{answer.id:016d}p0,{NOW},,,,,\0{other}")
    jobs = await store.take(Q, 3)
    assert [(job.id, job.data) for job in jobs] == [(answer.id, b"good")]
    assert {job.data.partition(b"\0")[2] for job in await dead(store)} == {b"other", b"another"}
    assert await store.settle([Done(jobs[0].lease)]) == []


async def test_a_lease_whose_batch_is_gone_comes_back(store: Store, server: RedisServer, clock: ManualClock) -> None:
    await store.enqueue([NewJob(Q)] * 3)
    jobs = await store.take(Q, 3)
    server.ask("DEL", f"{BASE}:ends", f"{BASE}:batches")
    assert [each.why for each in await store.settle([Done(jobs[0].lease)])] == ["lost"]
    assert await store.wait([Q], 0)
    again = await store.take(Q, 3)
    assert [(job.id, job.attempts, job.crashes) for job in again] == [(job.id, 1, 1) for job in jobs]


async def test_a_lost_batch_among_others_is_found_by_those_who_count(
    store: Store, server: RedisServer, clock: ManualClock
) -> None:
    await store.enqueue([NewJob(Q)] * 2)
    (lost,) = await store.take(Q, 1, lease=3600 * 24)
    (held,) = await store.take(Q, 1, lease=3600 * 24)
    server.ask("ZREM", f"{BASE}:ends", server.ask("ZRANGE", f"{BASE}:ends", 0, 0)[0])
    await store.stats()
    clock.advance(601)
    for _ in range(3):
        await store.stats()
    assert [job.id for job in await store.take(Q, 2)] == [lost.id]
    assert await store.settle([Done(held.lease)]) == []


async def test_ids_go_on_above_all_when_their_counter_is_damaged_or_gone(store: Store, server: RedisServer) -> None:
    (first,) = await store.enqueue([NewJob(Q)])
    for spoil in (("HSET", "accoda:ids", "last", "x"), ("DEL", "accoda:ids"), ("HSET", "accoda:ids", "last", "0")):
        server.ask(*spoil)
        (answer,) = await store.enqueue([NewJob(Q)])
        assert answer.id > NOW > first.id


class TestAKeyOfAnotherType:
    @pytest.mark.parametrize("name", ["ready", "taken", "ends", "batches", "delayed", "meta", "ready:ids"])
    async def test_is_named_and_stops_no_other_queue(
        self, store: Store, server: RedisServer, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.enqueue([NewJob(Q), NewJob("other"), NewJob("other", delay=3600)])
        (running,) = await store.take("other", 1)
        server.ask("DEL", "moved-away")
        server.ask("RENAME", f"{BASE}:{name}", "moved-away")
        server.ask("SET", f"{BASE}:{name}", "a string")
        with caplog.at_level(logging.WARNING), pytest.raises(StorageError, match=rf"{name}'.*is a string.*RENAME"):
            await store.enqueue([NewJob(Q)])
            await store.take(Q, 1)
            await store.settle([Bury(job.lease, "x") for job in await store.take(Q, 1)])
            await store.pause(Q)
        assert "other" in (await store.stats()).queues
        assert not await store.wait([Q, "other"], 0) or name != "ready"
        assert await store.find(running.id) is not None
        assert await store.settle([Done(running.lease)]) == []
        server.ask("DEL", f"{BASE}:{name}")
        server.ask("RENAME", "moved-away", f"{BASE}:{name}")
        stats = (await store.stats()).queues[Q]
        assert stats.ready + stats.taken == stats.total == (2 if name not in ("ready", "ready:ids") else 1)

    @pytest.mark.parametrize("name", ["ready", "ready:ids"])
    async def test_lets_nobody_be_lost_who_is_started(self, store: Store, server: RedisServer, name: str) -> None:
        here, other = await store.enqueue([NewJob(Q, delay=3600), NewJob("other", delay=3600)])
        server.ask("SET", f"{BASE}:{name}", "a string")
        assert await store.start_now([here.id, other.id]) == 1
        assert [job.id for job in await store.take("other", 1)] == [other.id]
        server.ask("DEL", f"{BASE}:{name}")
        await store.start_now([here.id])
        assert [job.id for job in await store.take(Q, 5)] == [here.id]
        stats = (await store.stats()).queues[Q]
        assert (stats.taken, stats.total) == (1, 1)

    async def test_of_the_layout_is_said_when_the_store_is_opened(self, server: RedisServer) -> None:
        server.ask("FLUSHALL")
        server.ask("SET", "accoda:layout", "mine")
        with pytest.raises(SchemaMismatch, match="prefix"):
            await open_storage(server.url)
        server.ask("FLUSHALL")
        server.ask("SADD", "accoda:layout", "mine")
        with pytest.raises(StorageError, match="accoda:layout"):
            await open_storage(server.url)
