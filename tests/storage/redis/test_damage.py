"""Damaged records in Redis: no call fails, no other job is lost, and what cannot be read ends as a dead letter."""

from __future__ import annotations

from random import Random

import pytest
from proof.damage.survival import REASON, survive
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer

from accoda import Done, JobInfo, ManualClock, NewJob, open_storage
from accoda.errors import StorageError
from accoda.model import ById, ByKey, Head, Remove
from accoda.storage.protocol import Store

Q = "q"
BASE = "accoda:q"
NOW = 1_800_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def buried(dead: list[JobInfo]) -> list[JobInfo]:
    return [job for job in dead if (job.reason or "").startswith(REASON)]


@pytest.mark.parametrize("seed", range(3))
async def test_thousands_of_damaged_records_lose_no_good_job_and_raise_nothing(
    store: Store, clock: ManualClock, seed: int
) -> None:
    damaged, dead = await survive(store, clock, Random(seed), 1200)
    assert damaged > 800
    assert len(buried(dead)) > 200


@pytest.mark.parametrize("partitions", [1, 3])
async def test_neither_do_they_in_a_cluster(partitions: int) -> None:
    with need(ClusterSet) as servers:
        clock = ManualClock()
        async with await open_storage(f"{servers.url}?partitions={partitions}", clock=clock) as store:
            damaged, dead = await survive(store, clock, Random(partitions), 300)
            assert damaged > 200
            assert len(buried(dead)) > 50


GOOD_HEAD = b"0000000000000007,0,,\t\0"
DAMAGED = [
    b"",
    b"garbage",
    b",,,",
    b"\x93\x01\x02\x03",
    b"0000000000000001,0,,",
    b"0000000000000001garbage",
    b"0000000000000007,0,,no end",
    GOOD_HEAD,
    GOOD_HEAD + b"18000",
    GOOD_HEAD + b"1800000000o00,,0,\0\0\0digits",
    GOOD_HEAD + b"1800000000000,,nan,\0\0\0rank",
    GOOD_HEAD + b"1800000000000,,0,5x\0\0\0cost",
    GOOD_HEAD + b"1800000000000,,0,5,\0\0\0no flow",
    GOOD_HEAD + b"1800000000000,,0,\0one,two\0\0past",
    GOOD_HEAD + b"1800000000000,,0,\0\0two texts are missing",
    b"00000000 0000007,0,,\t\x001800000000000,,0,\0\0\0digits",
    b"0000000000000007,0,,\x001800000000000,,0,\0\0\0no tab",
    b"0000000000000007,0,,\t\xff\x001800000000000,,0,\0\0\0key",
    b"0000000000000007,0,,\xff\t\x001800000000000,,0,\0\0\0lane",
    b"0000000000000007,0,,a\t\x001800000000000,,x,\0\0\0rank of a job that has a lane",
    b"0000000000000007," + b"9" * 5000 + b",,\t\x001800000000000,,0,\0\0\0attempts",
    b"0000000000000007," + b"9" * 40 + b",,\t\x001800000000000,,0,\0\0\0attempts",
]


@pytest.mark.parametrize("record", DAMAGED)
async def test_a_record_that_cannot_be_read_is_buried_by_its_taker_and_the_others_are_given(
    store: Store, server: RedisServer, clock: ManualClock, record: bytes
) -> None:
    await store.enqueue([NewJob(Q, b"good"), NewJob(Q, b"too")])
    server.ask("ZADD", f"{BASE}:ready", -5, record)  # type: ignore[arg-type]
    assert [job.data for job in await store.take(Q, 2, lease=60)] == [b"good"]
    (dead,) = await store.browse(Q, "dead")
    assert (dead.data, dead.ended_at) == (record, NOW)
    assert dead.reason is not None and dead.reason.startswith(REASON)
    stats = (await store.stats()).queues[Q]
    assert (stats.dead, stats.buried, stats.taken) == (1, 1, 1)
    clock.advance(60)
    assert [(job.data, job.crashes) for job in await store.take(Q, 9)] == [(b"good", 1), (b"too", 0)]
    assert await store.change([Remove(dead.id)]) == 1
    assert server.ask("EXISTS", f"{BASE}:dead", f"{BASE}:dead:ids") == 0


@pytest.mark.parametrize("record", DAMAGED)
async def test_a_look_passes_over_what_cannot_be_read(store: Store, server: RedisServer, record: bytes) -> None:
    (answer,) = await store.enqueue([NewJob(Q, b"good")])
    server.ask("ZADD", f"{BASE}:ready", -5, record)  # type: ignore[arg-type]
    head = (await store.look(Head(Q))).job
    assert head is None or head.id == answer.id
    assert [job.id for job in await store.browse(Q, "ready")] == [answer.id]


@pytest.mark.parametrize("holder", ["no id", f"{77:016d}", f"{1:016d}"])
async def test_a_key_whose_holder_cannot_be_read_is_free(store: Store, server: RedisServer, holder: str) -> None:
    server.ask("ZADD", f"{BASE}:ready", 0, f"{1:016d},0,,\tk\x00180000o,,0,\0\0\0no moment")
    server.ask("HSET", f"{BASE}:ready:ids:{1:016d}"[:-2], "01", "0")
    server.ask("HSET", f"{BASE}:keys", "k", holder)
    server.ask("SADD", "accoda:queues", Q)
    server.ask("HSET", "accoda:ids", "last", "100")
    assert (await store.look(ByKey(Q, "k"), waiters_after=0)).job is None
    (answer,) = await store.enqueue([NewJob(Q, key="k", on_duplicate="attach", waiter=b"w")])
    assert answer.what == "created"
    seen = await store.look(ByKey(Q, "k"), waiters_after=0)
    assert seen.job is not None and seen.job.id == answer.id
    assert seen.waiters == (b"w",)


async def test_a_batch_that_cannot_be_read_gives_its_jobs_back(
    store: Store, server: RedisServer, clock: ManualClock
) -> None:
    await store.enqueue([NewJob(Q)] * 3)
    jobs = await store.take(Q, 3, lease=60)
    (batch,) = server.ask("ZRANGE", f"{BASE}:ends", 0, -1)
    server.ask("HSET", f"{BASE}:batches", batch, "no batch")
    assert await store.settle([Done(jobs[0].lease)]) == []
    clock.advance(60)
    assert [(job.id, job.crashes) for job in await store.take(Q, 3)] == [(job.id, 1) for job in jobs[1:]]


async def test_a_job_whose_lease_has_no_end_is_lost_to_its_taker_and_comes_back_when_it_is_named(
    store: Store, server: RedisServer
) -> None:
    await store.enqueue([NewJob(Q)])
    (job,) = await store.take(Q, 1)
    server.ask("DEL", f"{BASE}:ends", f"{BASE}:batches")
    assert [each.why for each in await store.settle([Done(job.lease)])] == ["lost"]
    found = (await store.look(ById(job.id))).job
    assert found is not None
    assert (found.state, found.crashes) == ("ready", 1)


@pytest.mark.parametrize("text", ["x", "", "-1", "9" * 30])
async def test_a_counter_that_is_no_number_begins_again(store: Store, server: RedisServer, text: str) -> None:
    await store.enqueue([NewJob(Q)])
    server.ask("HSET", f"{BASE}:meta", "done", text, "paused", text or "soon")
    assert (await store.stats()).queues[Q].done == 0
    (job,) = await store.take(Q, 1)
    assert await store.settle([Done(job.lease)]) == []
    assert (await store.stats()).queues[Q].done in (0, 1)


async def test_a_key_of_another_type_is_an_error_that_says_what_to_do(store: Store, server: RedisServer) -> None:
    await store.enqueue([NewJob(Q), NewJob("other")])
    server.ask("RENAME", f"{BASE}:ready", "moved-away")
    server.ask("SET", f"{BASE}:ready", "a string")
    with pytest.raises(StorageError, match=r"another type.*RENAME"):
        await store.take(Q, 1)
    assert len(await store.take("other", 1)) == 1
    server.ask("RENAME", "moved-away", f"{BASE}:ready")
    assert len(await store.take(Q, 1)) == 1
