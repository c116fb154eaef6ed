"""A Redis Cluster: partitions, companions, slots that move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from proof.servers.redis import ClusterSet

from accoda import Bury, Done, Job, Lease, NewJob, Retry, open_storage
from accoda.model import ById, ByKey, Head, Remove, Rerank, StartNow
from accoda.storage.redis.client import Client
from accoda.storage.redis.keys import family, slot_of
from accoda.storage.redis.storage import RedisStorage

Q = "q"


async def opened(servers: ClusterSet, options: str = "") -> RedisStorage:
    store = await open_storage(f"{servers.url}?{options}")
    assert isinstance(store, RedisStorage)
    return store


@pytest_asyncio.fixture
async def store(servers: ClusterSet) -> AsyncIterator[RedisStorage]:
    for master in servers.masters:
        master.ask("FLUSHALL")
    async with await opened(servers) as store:
        yield store


def test_a_slot_is_the_one_that_redis_computes(servers: ClusterSet) -> None:
    for tag in ("deals", "q/3", "größer", ""):
        assert slot_of(tag) == servers.masters[0].ask("CLUSTER", "KEYSLOT", tag)
    assert family("deals.deliver.again") == family("deals") == "deals"


class TestPartitions:
    @pytest_asyncio.fixture
    async def split(self, store: RedisStorage, servers: ClusterSet) -> AsyncIterator[RedisStorage]:
        async with await opened(servers, "partitions=3") as split:
            yield split

    async def test_use_several_nodes(self, split: RedisStorage, servers: ClusterSet) -> None:
        for _ in range(6):
            await split.enqueue([NewJob(Q)] * 2)
        for part in range(3):
            owner = servers.owner(slot_of(f"{Q}/{part}"))
            assert owner.ask("ZCARD", f"accoda:{{{Q}/{part}}}:{Q}:ready") == 4
        stats = (await split.stats()).queues
        assert set(stats) == {Q}
        assert (stats[Q].ready, stats[Q].total) == (12, 12)

    async def test_keep_the_order_within_each(self, split: RedisStorage) -> None:
        ids = [answer.id for _ in range(9) for answer in await split.enqueue([NewJob(Q)] * 3)]
        taken = []
        while jobs := await split.take(Q, 2):
            taken += [job.id for job in jobs]
        assert sorted(taken) == sorted(ids)
        for number in {id % 1000 for id in ids}:
            assert [id for id in taken if id % 1000 == number] == [id for id in ids if id % 1000 == number]

    async def test_are_visited_in_turn(self, split: RedisStorage) -> None:
        for _ in range(3):
            await split.enqueue([NewJob(Q)] * 10)
        numbers = [job.id % 1000 for _ in range(6) for job in await split.take(Q, 1)]
        assert sorted(numbers.count(number) for number in set(numbers)) == [2, 2, 2]

    async def test_a_key_is_held_once_in_all_of_them(self, split: RedisStorage) -> None:
        answers = [(await split.enqueue([NewJob(Q, key="k", waiter=b"w", on_duplicate="attach")]))[0] for _ in range(6)]
        assert [answer.what for answer in answers] == ["created"] + ["attached"] * 5
        assert len({answer.id for answer in answers}) == 1

    async def test_delayed_jobs_are_started_in_each(self, split: RedisStorage) -> None:
        ids = [(await split.enqueue([NewJob(Q, delay=900)]))[0].id for _ in range(6)]
        assert len({id % 1000 for id in ids}) == 3
        waiting = asyncio.create_task(split.wait([Q], 60))
        assert await split.change([StartNow(id) for id in (*ids, ids[0])]) == 6
        assert await asyncio.wait_for(waiting, 10)
        assert sorted(job.id for job in await split.take(Q, 9)) == sorted(ids)

    async def test_every_verb_finds_its_job(self, split: RedisStorage) -> None:
        ids = [(await split.enqueue([NewJob(Q, str(n).encode(), cost=2)]))[0].id for n in range(6)]
        assert [(await split.look(ById(id))).job.id for id in ids] == ids  # type: ignore[union-attr]
        assert await split.change([Rerank(id, 7.0, queue=Q if id == ids[0] else None) for id in ids]) == 6
        assert [job.id for job in await split.browse(Q, "ready", order="id", limit=4)] == sorted(ids)[:4]
        assert len(await split.take(Q, 6, max_cost=3)) == 1
        jobs = await split.take(Q, 6)
        assert len(jobs) == 5
        assert await split.extend([job.lease for job in jobs], 100) == []
        then = [NewJob("q.next", job.data) for job in jobs]
        assert await split.settle([Done(jobs[0].lease, then=then), *(Retry(job.lease) for job in jobs[1:])]) == []
        assert await split.change([Remove(jobs[1].id), Remove(jobs[2].id, 0, Q)]) == 2
        stats = (await split.stats()).queues
        assert (stats[Q].ready, stats[Q].taken, stats[Q].done, stats["q.next"].ready) == (2, 1, 1, 5)
        assert await split.purge(Q, "ready") == 2

    async def test_jobs_ahead_are_those_of_all_partitions(self, split: RedisStorage) -> None:
        ids = [(await split.enqueue([NewJob(Q)]))[0].id for _ in range(9)]
        (urgent,) = await split.enqueue([NewJob(Q, rank=-1)])
        (later,) = await split.enqueue([NewJob(Q, rank=1, delay=900)])
        assert len({id % 1000 for id in ids}) == 3
        looks = {id: await split.look(ById(id), ahead=True) for id in (*ids, urgent.id, later.id)}
        places = {id: (look.ahead, look.newer) for id, look in looks.items()}
        # One after the other from each partition: each is the n-th there, and those before it are ahead.
        assert [places[id][0] for id in sorted(ids)] == list(range(1, 10))
        assert places[urgent.id] == (0, 0)
        assert places[later.id] == (10, sum(id > later.id for id in (*ids, urgent.id)))
        assert all(places[id][1] == (urgent.id > id) for id in ids)

    async def test_a_page_is_in_the_order_of_all_partitions(self, split: RedisStorage) -> None:
        for n in range(9):
            await split.enqueue([NewJob(Q, rank=float(n % 4))])
        page = await split.browse(Q, "ready", limit=5)
        page += await split.browse(Q, "ready", after=page[-1].cursor(), limit=5)
        assert [job.rank for job in page] == [0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
        for job in await split.take(Q, 9):
            await split.settle([Bury(job.lease, "x")])
        dead = await split.browse(Q, "dead", limit=4)
        dead += await split.browse(Q, "dead", after=dead[-1].cursor())
        assert len(dead) == 9
        ends = [job.ended_at or 0 for job in dead]
        assert ends == sorted(ends, reverse=True)

    async def test_a_look_shows_what_the_next_take_gives(self, split: RedisStorage) -> None:
        for n in range(7):
            await split.enqueue([NewJob(Q, rank=float(n % 3))])
        for _ in range(7):
            head = (await split.look(Head(Q))).job
            assert head is not None
            assert [job.id for job in await split.take(Q, 1)] == [head.id]
        assert (await split.look(Head(Q))).job is None

    async def test_a_look_at_a_key_finds_its_job(self, split: RedisStorage) -> None:
        for n in range(6):
            (answer,) = await split.enqueue([NewJob(Q, key=f"k{n}", waiter=b"%d" % n)])
            seen = await split.look(ByKey(Q, f"k{n}"), waiters_after=0)
            assert seen.job == (await split.look(ById(answer.id))).job
            assert seen.waiters == (b"%d" % n,)

    async def test_a_lease_that_names_another_queue_is_lost_in_either(self, split: RedisStorage) -> None:
        await split.enqueue([NewJob(Q), NewJob("other")])
        (job,) = await split.take("other", 1)
        strange = Lease(Q, job.id, 0, 0)
        assert [each.why for each in await split.settle([Done(strange)])] == ["lost"]
        assert [each.why for each in await split.extend([strange], 60)] == ["lost"]
        assert await split.change([Rerank(job.id, 5.0, queue=Q)]) == 0

    async def test_are_paused_and_woken_together(self, split: RedisStorage) -> None:
        await split.pause(Q, None)
        for _ in range(3):
            await split.enqueue([NewJob(Q)])
        assert await split.take(Q, 3) == []
        waiting = asyncio.create_task(split.wait([Q], 10))
        await split.stats()
        await split.pause(Q, 0)
        assert await waiting
        assert len(await split.take(Q, 3)) == 3


class TestCompanions:
    """`deals`, `deals.deliver` and `deals.cache` are in one slot, so a job's end and its follow-ups are one step."""

    @pytest.mark.parametrize("options", ["", "partitions=3"])
    async def test_the_end_the_cached_result_and_the_deliveries_are_one_script(
        self, store: RedisStorage, servers: ClusterSet, monkeypatch: pytest.MonkeyPatch, options: str
    ) -> None:
        scripts: list[str] = []
        prepare = Client._prepare

        def noting(self: Client, script: Any, *rest: Any) -> Any:
            if script.name != "collect":  # a look into the outboxes, now and then
                scripts.append(script.name)
            return prepare(self, script, *rest)

        async with await opened(servers, options) as store:
            for n in range(6):  # the first makes the cached result, the others replace it; and other keys beside it
                key = f"k{n % 2}"
                (new,) = await store.enqueue([NewJob("deals", key=key, on_duplicate="attach", waiter=b"a")])
                job = await self.taken(store, new.id)
                cached = NewJob("deals.cache", b"%d" % n, key=key, on_duplicate="replace", delay=7200)
                end = Done(
                    job.lease, then=[cached, *[NewJob("deals.deliver")] * 3, NewJob("deals", key=key)], waiters=1
                )
                with monkeypatch.context() as patch:
                    patch.setattr(Client, "_prepare", noting)
                    assert await store.settle([end]) == []
                assert scripts == ["settle"] * (n + 1)
                assert (await store.look(ByKey("deals.cache", key))).job.data == b"%d" % n  # type: ignore[union-attr]
                next_one = (await store.look(ByKey("deals", key))).job
                assert next_one is not None
                assert await store.change([Remove(next_one.id, 0, "deals")]) == 1
            stats = (await store.stats()).queues
            assert (stats["deals"].total, stats["deals.deliver"].ready, stats["deals.cache"].delayed) == (0, 18, 2)

    @pytest.mark.parametrize("options", ["", "partitions=3"])
    async def test_of_an_end_that_is_refused_nothing_is_left(
        self, store: RedisStorage, servers: ClusterSet, options: str
    ) -> None:
        async with await opened(servers, options) as store:
            joins = NewJob("deals", key="k", on_duplicate="attach", waiter=b"a")
            job = await self.taken(store, (await store.enqueue([joins]))[0].id)
            await store.enqueue([joins])
            cached = NewJob("deals.cache", key="k", on_duplicate="replace", delay=7200)
            end = Done(job.lease, then=[cached, NewJob("deals.deliver")], waiters=1)
            assert [each.why for each in await store.settle([end])] == ["grown"]
            assert (await store.look(ByKey("deals.cache", "k"))).job is None
            assert (await store.look(Head("deals.deliver"))).job is None

    async def taken(self, store: RedisStorage, id: int) -> Job:
        (job,) = await store.take("deals", 1)
        assert job.id == id
        return job


@pytest.mark.parametrize("how", ["take", "look", "browse"])
async def test_a_new_id_is_above_all_that_the_client_has_seen(store: RedisStorage, how: str) -> None:
    ids = [answer.id for answer in await store.enqueue([NewJob(Q)] * 5)]
    (first,) = await store.take(Q, 1)
    await store.settle([Done(first.lease, then=[NewJob(Q, b"then", rank=-1.0)])])
    then = ids[-1] + 1000  # the next of this shard; `settle` does not tell it
    match how:
        case "take":
            assert [job.id for job in await store.take(Q, 1)] == [then]
        case "look":
            assert (await store.look(ById(then))).job is not None
        case "browse":
            assert then in [info.id for info in await store.browse(Q, "ready")]
    (other,) = await store.enqueue([NewJob("elsewhere")])
    assert other.id > then


async def test_work_goes_on_while_a_slot_moves_to_another_node(store: RedisStorage, servers: ClusterSet) -> None:
    done: list[int] = []
    enqueued: list[int] = []
    moved = asyncio.Event()

    async def produce() -> None:
        while not moved.is_set():
            enqueued.extend(
                answer.id for answer in await store.enqueue([NewJob(Q, b"x", delay=n % 2 / 100) for n in range(20)])
            )

    async def work() -> None:
        while not moved.is_set() or (await store.stats()).queues[Q].total > len(held):
            for job in await store.take(Q, 10):
                assert await store.settle([Done(job.lease)]) == []
                done.append(job.id)

    async def hoard() -> None:
        async with await opened(servers) as other:
            while not moved.is_set():
                held.extend(await other.take(Q, 1, lease=600))
                await asyncio.sleep(0.001)

    enqueued += [answer.id for answer in await store.enqueue([NewJob(Q)] * 5)]
    held = await store.take(Q, 5, lease=600)  # older than the ready jobs, so that it moves after them
    enqueued += [answer.id for answer in await store.enqueue([NewJob(Q, rank=-1)] * 3000)]
    tasks = [asyncio.create_task(each) for each in (produce(), work(), work(), hoard())]
    while len(done) < 50:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(move_slot, servers, slot_of(Q))
    before = len(done)
    while len(done) < before + 50:
        await asyncio.sleep(0.01)
    moved.set()
    await asyncio.gather(*tasks)
    assert sorted([*done, *(job.id for job in held)]) == sorted(enqueued)
    assert await store.settle([Done(job.lease) for job in held]) == []


def move_slot(servers: ClusterSet, slot: int) -> None:
    source = servers.owner(slot)
    target = next(master for master in servers.masters if master is not source)
    source_id, target_id = (server.ask("CLUSTER", "MYID") for server in (source, target))
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
        assert source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys) == "OK"
    for server in (target, source, *servers.masters):
        server.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
