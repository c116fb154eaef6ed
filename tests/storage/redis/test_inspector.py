"""Looks and changes of many callers, long lines of waiters, and counts while queues appear."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from proof.servers.redis import RedisServer

from accoda import Done, ManualClock, NewJob, open_storage
from accoda.model import ById, ByKey, Change, Head, Remove, Rerank, Target
from accoda.storage.protocol import Store

Q = "q"


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url) as store:
        yield store


async def test_a_job_has_ten_thousand_waiters_and_each_gets_a_follow_up(store: Store) -> None:
    # More than Lua's stack holds, and more than one command takes.
    names = [b"%d" % n for n in range(10_000)]
    await store.enqueue([NewJob(Q, key="k", on_duplicate="attach", waiter=name) for name in names])
    assert (await store.look(ByKey(Q, "k"), waiters_after=0)).waiters == tuple(names)
    assert (await store.look(Head(Q), waiters_after=9_998)).waiters == (b"9998", b"9999")
    (job,) = await store.take(Q, 1)
    assert (await store.look(ById(job.id), waiters_after=0)).waiters == tuple(names)
    cached = NewJob("q.cache", key="k", on_duplicate="replace", delay=60)
    end = Done(job.lease, then=[cached, *(NewJob("q.deliver", name) for name in names)], waiters=10_000)
    assert await store.settle([end]) == []
    assert [each.data for each in await store.take("q.deliver", 10_000)] == names
    assert (await store.stats()).queues["q.cache"].delayed == 1


class TestLooksThatGoTogether:
    async def test_ask_each_question_once(self, store: Store, server: RedisServer) -> None:
        await store.enqueue([NewJob(Q, key="k", on_duplicate="attach", waiter=b"%d" % n) for n in range(9)])
        await store.enqueue([NewJob("other", key="k")])
        server.ask("CONFIG", "RESETSTAT")
        targets: list[ByKey | Head] = [ByKey(Q, "k"), ByKey(Q, "free"), Head(Q), ByKey("other", "k"), Head("other")]
        looks = [(target, after) for target in targets for after in (None, 0, 5, 11)] * 20
        found = await asyncio.gather(*(store.look(target, waiters_after=after) for target, after in looks))
        for (target, after), seen in zip(looks, found, strict=True):
            assert (seen.job is None) == (target == ByKey(Q, "free"))
            assert seen.job is None or seen.job.queue == target.queue
            waiters = [b"%d" % n for n in range(9)] if target in (ByKey(Q, "k"), Head(Q)) else []
            assert seen.waiters == (() if after is None else tuple(waiters[after:]))
        reads = re.search(r"cmdstat_lrange:calls=(\d+)", server.ask("INFO", "commandstats"))
        assert reads is not None
        assert int(reads[1]) <= 24, "400 looks"

    async def test_see_what_is_due_in_their_own_queue_whatever_is_in_others(self, server: RedisServer) -> None:
        server.ask("FLUSHALL")
        clock = ManualClock(1_800_000_000_000)
        async with await open_storage(server.url, clock=clock) as store:
            await store.enqueue([NewJob("storm", delay=1) for _ in range(1100)])
            first, held = await store.enqueue([NewJob("calm", delay=1), NewJob("calm", key="k", delay=1, rank=1.0)])
            clock.advance(1)
            targets: list[Target] = [Head("elsewhere"), Head("storm"), ByKey("calm", "k"), Head("calm"), ById(held.id)]
            nothing, storm, seen, head, by_id = [
                look.job for look in await asyncio.gather(*(store.look(target) for target in targets))
            ]
            assert nothing is None
            assert storm is not None and seen is not None and head is not None
            assert (storm.queue, seen.id, head.id) == ("storm", held.id, first.id)
            assert by_id == seen


async def test_changes_of_many_callers_go_together_and_each_hears_of_its_own(store: Store) -> None:
    ids = [answer.id for answer in await store.enqueue([NewJob(Q), NewJob("other"), NewJob(Q)])]
    calls: list[list[Change]] = [
        [Rerank(ids[0], 5.0), Remove(ids[1], queue="other")],
        [Remove(999)],
        [Remove(ids[1])],
        [Remove(ids[2], queue="other"), Remove(ids[2], queue="unknown"), Remove(ids[2])],
        [Remove(ids[0])] * 2,
    ]
    assert await asyncio.gather(*map(store.change, calls)) == [2, 0, 0, 1, 1]
    assert all(queue.total == 0 for queue in (await store.stats()).queues.values())


async def test_more_changes_than_one_step_takes_are_all_applied(store: Store) -> None:
    ids = [answer.id for answer in await store.enqueue([NewJob(Q)] * 1200)]
    assert await store.change([Rerank(id, -1.0, queue=Q) for id in ids]) == 1200
    assert await store.change([Remove(id) for id in ids]) == 1200


@pytest.mark.parametrize("order", ["line", "id"])
async def test_a_page_of_more_than_one_step_is_complete(store: Store, order: str) -> None:
    ids = [answer.id for answer in await store.enqueue([NewJob(Q, rank=float(n % 3)) for n in range(1300)])]
    page = await store.browse(Q, "ready", order=order, limit=1201)  # type: ignore[arg-type]
    in_line = ids[::3] + ids[1::3] + ids[2::3]
    assert [job.id for job in page] == (in_line if order == "line" else ids)[:1201]
    rest = await store.browse(Q, "ready", order=order, after=page[-1].cursor(order))  # type: ignore[arg-type]
    assert [job.id for job in rest] == (in_line if order == "line" else ids)[1201:]


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
