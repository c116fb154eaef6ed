"""What is particular to Redis in `peek` and `drop`, and where thousands share one job."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from accoda import Done, ManualClock, NewJob, open_storage
from accoda.errors import StorageError
from accoda.model import Peek
from accoda.storage.protocol import Store
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import RedisServer

Q = "q"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with need(RedisServer) as server:
        yield server


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url) as store:
        yield store


async def test_ten_thousand_wait_for_one_job_and_each_gets_a_follow_up(store: Store) -> None:
    # More than Lua's stack holds, and more than one command takes.
    names = [b"%d" % n for n in range(10_000)]
    await store.enqueue([NewJob(Q, key="k", on_duplicate="attach", waiter=name) for name in names])
    assert (await store.peek(Q, "k", after=0)).waiters == tuple(names)
    assert (await store.peek(Q, after=9_998)).waiters == (b"9998", b"9999")
    (job,) = await store.take(Q, 1)
    assert await store.waiters(job.lease) == names
    cached = NewJob("q.cache", key="k", on_duplicate="replace", delay=60)
    end = Done(job.lease, then=[cached, *(NewJob("q.deliver", name) for name in names)], waiters=10_000)
    assert await store.settle([end]) == []
    assert [each.data for each in await store.take("q.deliver", 10_000)] == names
    assert (await store.stats()).queues["q.cache"].delayed == 1


async def test_of_several_ends_only_the_follow_ups_of_those_that_were_applied_are_stored(store: Store) -> None:
    joins = NewJob(Q, key="k", on_duplicate="attach", waiter=b"w")
    await store.enqueue([NewJob(Q), joins, NewJob(Q)])
    one, grown, three = await store.take(Q, 3)
    await store.enqueue([joins])
    late = NewJob("q.next", b"late", key="a", delay=60)
    refused = await store.settle(
        [
            Done(one.lease, then=[NewJob("q.next", b"1"), NewJob("q.next", b"2", key="b")]),
            Done(grown.lease, then=[late, NewJob("q.next", b"no")], waiters=1),
            Done(three.lease, then=[NewJob("q.next", b"3")]),
        ]
    )
    assert [(each.lease, each.why) for each in refused] == [(grown.lease, "grown")]
    assert [job.data for job in await store.take("q.next", 9)] == [b"1", b"2", b"3"]
    assert (await store.stats()).queues["q.next"].delayed == 0


async def test_those_who_attach_in_one_call_find_the_job_as_the_ones_before_left_it(store: Store) -> None:
    joins = NewJob(Q, key="k", on_duplicate="attach", waiter=b"w")
    await store.enqueue([joins])
    (job,) = await store.take(Q, 1)
    replaces = NewJob(Q, b"new", key="k", on_duplicate="replace", waiter=b"r")
    answers = await store.enqueue([joins, replaces, joins, NewJob(Q, key="k"), joins, replaces, NewJob(Q, key="other")])
    assert [answer.waiters for answer in answers] == [2, 3, 4, 4, 5, 6, 0]
    whats = ["attached", "replaced", "attached", "kept", "attached", "replaced", "created"]
    assert [answer.what for answer in answers] == whats
    assert [each.why for each in await store.settle([Done(job.lease)])] == ["lost"]
    assert [(each.data, each.waiters) for each in await store.take(Q, 1)] == [(b"new", 6)]


class TestLooksThatGoTogether:
    async def test_share_one_look_at_the_same_job(self, store: Store, server: RedisServer) -> None:
        await store.enqueue([NewJob(Q, key="k", on_duplicate="attach", waiter=b"%d" % n) for n in range(9)])
        await store.enqueue([NewJob("other", key="k")])
        server.ask("CONFIG", "RESETSTAT")
        looks = [
            (queue, key, after) for queue in (Q, "other") for key in ("k", "free", None) for after in (None, *range(11))
        ]
        found = await asyncio.gather(*(store.peek(queue, key, after=after) for queue, key, after in looks))
        for (queue, key, after), seen in zip(looks, found, strict=True):
            assert (seen.job is None) == (key == "free")
            assert seen.job is None or seen.job.queue == queue
            everybody = [b"%d" % n for n in range(9)] if queue == Q and key != "free" else []
            assert seen.waiters == (() if after is None else tuple(everybody[after:]))
        reads = re.search(r"cmdstat_lrange:calls=(\d+)", server.ask("INFO", "commandstats"))
        assert reads is not None
        assert int(reads[1]) <= 4, "one for each job that was looked at in one way"

    async def test_see_what_is_due_in_their_own_queue_whatever_is_in_others(self, server: RedisServer) -> None:
        server.ask("FLUSHALL")
        clock = ManualClock(1_800_000_000_000)
        async with await open_storage(server.url, clock=clock) as store:
            await store.enqueue([NewJob("storm", delay=1) for _ in range(1100)])
            first, held = await store.enqueue([NewJob("calm", delay=1), NewJob("calm", key="k", delay=1, rank=1.0)])
            clock.advance(1)
            looks = [store.peek("elsewhere"), store.peek("storm"), store.peek("calm", "k"), store.peek("calm")]
            nothing, storm, seen, head = [look.job for look in await asyncio.gather(*looks)]
            assert nothing is None
            assert storm is not None and seen is not None and head is not None
            assert (storm.queue, seen.id, head.id) == ("storm", held.id, first.id)

    async def test_a_damaged_queue_fails_alone(self, store: Store, server: RedisServer) -> None:
        (answer,) = await store.enqueue([NewJob(Q)])
        server.ask("SET", "accoda:{bad}:bad:delayed", "something else")
        calls = [store.peek(queue) for queue in (Q, Q, "bad", Q)]
        *good, bad, last = await asyncio.gather(*calls, return_exceptions=True)
        for seen in (*good, last):
            assert isinstance(seen, Peek)
            assert seen.job is not None
        assert isinstance(bad, StorageError)
        drops = [store.drop(queue, id, 0) for queue, id in ((Q, 99), ("bad", 1), (Q, answer.id), ("bad", 2))]
        nothing, one, gone, two = await asyncio.gather(*drops, return_exceptions=True)
        assert (nothing, gone) == (False, True)
        assert all("bad:delayed" in str(error) for error in (bad, one, two))


async def test_stats_counts_a_job_that_moves_into_a_new_queue_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of the queues were read; then a job's follow-up made another queue."""
    await store.enqueue([NewJob(Q)])
    (job,) = await store.take(Q, 1)
    shards = store._shards  # type: ignore[attr-defined]
    names = shards.names

    async def slow(shard: object) -> list[str]:
        found: list[str] = await names(shard)
        await store.settle([Done(job.lease, then=[NewJob("new")])])
        return found

    monkeypatch.setattr(shards, "names", slow)
    assert {name: queue.total for name, queue in (await store.stats()).queues.items()} == {Q: 0, "new": 1}


async def test_stats_of_an_empty_store_is_empty(store: Store) -> None:
    assert (await store.stats()).queues == {}
