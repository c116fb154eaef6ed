"""A Redis Cluster: partitions, jobs for other shards, slots that move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from accoda import Bury, Done, Job, Lease, ManualClock, NewJob, Outcome, Rank, Retry, open_storage
from accoda.errors import StorageError, StorageFull
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.connection import ConnectionLost
from accoda.storage.redis.encode import unseal
from accoda.storage.redis.keys import family, slot_of
from accoda.storage.redis.outbox import Outbox, Run
from accoda.storage.redis.scripts import script
from accoda.storage.redis.storage import RedisStorage
from accoda.testing.damage.survival import REASON, survive
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import ClusterSet

Q = "q"


@pytest.fixture(scope="module")
def servers() -> Iterator[ClusterSet]:
    with need(ClusterSet) as servers:
        yield servers


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
        assert await split.start_now([*ids, ids[0]]) == 6
        assert await asyncio.wait_for(waiting, 10)
        assert sorted(job.id for job in await split.take(Q, 9)) == sorted(ids)

    async def test_every_verb_finds_its_job(self, split: RedisStorage) -> None:
        ids = [(await split.enqueue([NewJob(Q, str(n).encode(), cost=2)]))[0].id for n in range(6)]
        assert [(await split.find(id)).id for id in ids] == ids  # type: ignore[union-attr]
        assert await split.rerank([Rank(Q, id, 7.0) for id in ids]) == 6
        assert [info.id for info in await split.browse(Q, "ready", limit=4)] == sorted(ids)[:4]
        assert len(await split.take(Q, 6, max_cost=3)) == 1
        jobs = await split.take(Q, 6)
        assert len(jobs) == 5
        assert await split.extend([job.lease for job in jobs], 100) == []
        then = [NewJob("q.next", job.data) for job in jobs]
        assert await split.settle([Done(jobs[0].lease, then=then), *(Retry(job.lease) for job in jobs[1:])]) == []
        assert await split.remove([jobs[1].id]) == 1
        assert await split.drop(Q, jobs[2].id, 0)
        stats = (await split.stats()).queues
        assert (stats[Q].ready, stats[Q].taken, stats[Q].done, stats["q.next"].ready) == (2, 1, 1, 5)
        assert await split.purge(Q, "ready") == 2

    async def test_a_place_counts_those_of_all_partitions(self, split: RedisStorage) -> None:
        ids = [(await split.enqueue([NewJob(Q)]))[0].id for _ in range(9)]
        (urgent,) = await split.enqueue([NewJob(Q, rank=-1)])
        (later,) = await split.enqueue([NewJob(Q, rank=1, delay=900)])
        assert len({id % 1000 for id in ids}) == 3
        seen = {id: await split.place(id) for id in (*ids, urgent.id, later.id)}
        places = {id: (place.ahead, place.newer, place.exact) for id, place in seen.items() if place is not None}
        # One after the other from each partition: each is the n-th there, and those before it are ahead.
        order = sorted(ids)
        assert [places[id][0] for id in order] == list(range(1, 10))
        assert places[urgent.id] == (0, 0, True)
        assert places[later.id] == (10, sum(id > later.id for id in (*ids, urgent.id)), True)
        assert all(places[id][1] == (urgent.id > id) for id in ids)

    async def test_a_look_shows_what_the_next_take_gives(self, split: RedisStorage) -> None:
        for n in range(7):
            await split.enqueue([NewJob(Q, rank=float(n % 3))])
        for _ in range(7):
            head = (await split.peek(Q)).job
            assert head is not None
            assert [job.id for job in await split.take(Q, 1)] == [head.id]
        assert (await split.peek(Q)).job is None

    async def test_a_look_at_a_key_finds_its_job(self, split: RedisStorage) -> None:
        for n in range(6):
            (answer,) = await split.enqueue([NewJob(Q, key=f"k{n}", waiter=b"%d" % n)])
            seen = await split.peek(Q, f"k{n}", after=0)
            assert seen.job == await split.find(answer.id)
            assert seen.waiters == (b"%d" % n,)

    async def test_a_lease_that_names_another_queue_is_lost_in_either(self, split: RedisStorage) -> None:
        await split.enqueue([NewJob(Q), NewJob("other")])
        (job,) = await split.take("other", 1)
        strange = Lease(Q, job.id, 0)
        assert [each.why for each in await split.settle([Done(strange)])] == ["lost"]
        assert [each.why for each in await split.extend([strange], 60)] == ["lost"]
        assert await split.rerank([Rank(Q, job.id, 5.0)]) == 0

    async def test_are_paused_and_woken_together(self, split: RedisStorage) -> None:
        await split.pause(Q)
        for _ in range(3):
            await split.enqueue([NewJob(Q)])
        assert await split.take(Q, 3) == []
        waiting = asyncio.create_task(split.wait([Q], 10))
        await split.stats()
        await split.resume(Q)
        assert await waiting
        assert len(await split.take(Q, 3)) == 3


class TestCompanions:
    """`deals`, `deals.deliver` and `deals.cache` are in one slot, so a job's end and its follow-ups are one step."""

    @pytest.mark.parametrize("options", ["", "partitions=3"])
    async def test_the_end_the_cached_result_and_the_deliveries_are_one_script(
        self, store: RedisStorage, servers: ClusterSet, monkeypatch: pytest.MonkeyPatch, options: str
    ) -> None:
        scripts: list[str] = []
        prepare = Caller._prepare

        def noting(self: Caller, script: Any, *rest: Any) -> Any:
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
                    patch.setattr(Caller, "_prepare", noting)
                    assert await store.settle([end]) == []
                assert scripts == ["settle"] * (n + 1)
                assert (await store.peek("deals.cache", key)).job.data == b"%d" % n  # type: ignore[union-attr]
                next_one = (await store.peek("deals", key)).job
                assert next_one is not None
                assert await store.drop("deals", next_one.id, 0)
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
            assert (await store.peek("deals.cache", "k")).job is None
            assert (await store.peek("deals.deliver")).job is None

    async def taken(self, store: RedisStorage, id: int) -> Job:
        (job,) = await store.take("deals", 1)
        assert job.id == id
        return job


@pytest.mark.parametrize("how", ["take", "find", "browse"])
async def test_a_new_id_is_above_all_that_the_client_has_seen(store: RedisStorage, how: str) -> None:
    ids = [answer.id for answer in await store.enqueue([NewJob(Q)] * 5)]
    (first,) = await store.take(Q, 1)
    await store.settle([Done(first.lease, then=[NewJob(Q, b"then", rank=-1.0)])])
    then = ids[-1] + 1000  # the next of this shard; `settle` does not tell it
    match how:
        case "take":
            assert [job.id for job in await store.take(Q, 1)] == [then]
        case "find":
            assert await store.find(then) is not None
        case "browse":
            assert then in [info.id for info in await store.browse(Q, "ready")]
    (other,) = await store.enqueue([NewJob("elsewhere")])
    assert other.id > then


class TestJobsForOtherShards:
    async def test_are_stored_all_together_and_answered_in_order(self, store: RedisStorage) -> None:
        names = [f"queue-{n % 5}" for n in range(20)]
        answers = await store.enqueue([NewJob(name) for name in names])
        assert [answer.id for answer in answers] == sorted(answer.id for answer in answers)
        for answer, name in zip(answers, names, strict=True):
            info = await store.find(answer.id)
            assert info is not None
            assert info.queue == name

    async def test_leave_nothing_in_the_outbox(self, store: RedisStorage, servers: ClusterSet) -> None:
        await store.enqueue([NewJob("a"), NewJob("b")])
        (job,) = await store.take("a", 1)
        assert await store.settle([Done(job.lease, then=[NewJob("b"), NewJob("c"), NewJob("a")])]) == []
        keys = [key for master in servers.masters for key in master.ask("KEYS", "*outbox*")]
        assert keys == []
        assert {name: each.ready for name, each in (await store.stats()).queues.items()} == {"a": 1, "b": 2, "c": 1}

    async def test_follow_a_burial_as_they_follow_an_end(self, store: RedisStorage, servers: ClusterSet) -> None:
        await store.enqueue([NewJob("a", b"1"), NewJob("a", b"2"), NewJob("b", b"3")])
        one, late = await store.take("a", 2)
        (other,) = await store.take("b", 1)
        assert await store.remove([late.id]) == 1
        outcomes = [
            Bury(one.lease, "x", [NewJob("b", b"of one"), NewJob("c", b"of one"), NewJob("a", b"of one")]),
            Bury(late.lease, "x", [NewJob("c", b"of the late")]),
            Bury(other.lease, "x", [NewJob("c", b"of the other"), NewJob("b", b"of the other")]),
        ]
        assert [(each.lease, each.why) for each in await store.settle(outcomes)] == [(late.lease, "lost")]
        keys = [key for master in servers.masters for key in master.ask("KEYS", "*outbox*")]
        assert keys == []
        found = {queue: [job.data for job in await store.take(queue, 9)] for queue in "abc"}
        assert found == {
            "a": [b"of one"],
            "b": [b"of one", b"of the other"],
            "c": [b"of one", b"of the other"],
        }
        assert {name: each.dead for name, each in (await store.stats()).queues.items()} == {"a": 1, "b": 1, "c": 0}

    async def test_arrive_once_though_their_sender_died_and_several_move_them(
        self, store: RedisStorage, servers: ClusterSet
    ) -> None:
        home = await store._shards.registered("a")
        runs = [Run(store._caller.new_name(), tag) for tag in ("b", "c")]
        for run in runs:
            run.jobs = [NewJob(run.tag, b"1"), NewJob(run.tag, b"2", key="k")]
        posted = [text for run in runs for text in (run.name, run.sealed())]
        await store._caller.once(script("post"), home, [home.outbox], *posted)
        # The sender delivered the first run and died before it could delete it.
        async with await opened(servers) as second, await opened(servers) as third:
            await store._outbox.sweep(left_after=1_000_000)
            assert (await store.stats()).queues == {}
            await store._outbox.deliver(runs[0].name, unseal(runs[0].sealed()))
            await asyncio.gather(*(each._outbox.sweep(left_after=0) for each in (second, third, second)))
            assert await third._outbox.sweep(left_after=0) == 0
            stats = (await second.stats()).queues
            assert {name: each.ready for name, each in stats.items()} == {"b": 2, "c": 2}


async def settle_and_die(store: RedisStorage, outcomes: list[Outcome], patch: pytest.MonkeyPatch) -> None:
    """A sender that dies after the settle, before it has delivered anything of the outbox."""
    settled = asyncio.Event()

    async def last_breath(*_: Any) -> None:
        settled.set()
        await asyncio.Event().wait()

    with patch.context() as dying:
        dying.setattr(Outbox, "deliver", last_breath)
        settling = asyncio.create_task(store.settle(outcomes))
        await settled.wait()
        settling.cancel()
        await asyncio.gather(settling, return_exceptions=True)


class TestFollowUpsOfSeveralShards:
    """Those of the lease's own shard are stored by the step that ends the job; only the others need the outbox."""

    @pytest.mark.parametrize("options", ["", "partitions=3"])
    async def test_a_job_that_follows_itself_holds_its_key_though_the_sender_died(
        self, store: RedisStorage, servers: ClusterSet, monkeypatch: pytest.MonkeyPatch, options: str
    ) -> None:
        async with await opened(servers, options) as sender, await opened(servers, options) as other:
            for n in range(6):  # as a schedule does with each tick
                key = f"k{n}"
                (first,) = await sender.enqueue([NewJob(Q, key=key)])
                (job,) = await sender.take(Q, 1)
                assert job.id == first.id
                then = [NewJob(Q, b"next", key=key, delay=60), NewJob("elsewhere", key=key)]
                await settle_and_die(sender, [Done(job.lease, then=then)], monkeypatch)
                following = (await other.peek(Q, key)).job
                assert following is not None
                assert (following.data, following.state) == (b"next", "delayed")
                assert following.id > first.id
                assert (await other.peek("elsewhere", key)).job is None
                assert await other._outbox.sweep(left_after=0) == 1
                assert (await other.peek("elsewhere", key)).job is not None
                assert (await other.peek(Q, key)).job == following
            assert {name: each.total for name, each in (await other.stats()).queues.items()} == {Q: 6, "elsewhere": 6}

    async def test_keep_their_order_and_those_of_refused_outcomes_are_not_stored(
        self, store: RedisStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.enqueue([NewJob("a")] * 4)
        one, late, two, again = await store.take("a", 4)
        assert await store.remove([late.id]) == 1
        outcomes: list[Outcome] = [
            Done(one.lease, then=[NewJob("a", b"1"), NewJob("b", b"1"), NewJob("a.x", b"1"), NewJob("b", b"2")]),
            Done(late.lease, then=[NewJob("a", b"late"), NewJob("b", b"late"), NewJob("c", b"late")]),
            Bury(two.lease, "x", [NewJob("b", b"3"), NewJob("c", b"1"), NewJob("a", b"2")]),
            Retry(again.lease, delay=60),
            Done(again.lease, then=[NewJob("b", b"twice"), NewJob("a", b"twice")]),
        ]
        await settle_and_die(store, outcomes, monkeypatch)
        own = {queue: [job.data for job in await store.take(queue, 9)] for queue in ("a", "a.x", "b", "c")}
        assert own == {"a": [b"1", b"2"], "a.x": [b"1"], "b": [], "c": []}
        assert await store._outbox.sweep(left_after=0) == 2
        others = {queue: [job.data for job in await store.take(queue, 9)] for queue in ("a", "a.x", "b", "c")}
        assert others == {"a": [], "a.x": [], "b": [b"1", b"2", b"3"], "c": [b"1"]}

    async def test_are_stored_once_though_the_reply_was_lost(
        self, store: RedisStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.enqueue([NewJob("a", key="k"), NewJob("a")])
        job, late = await store.take("a", 2)
        assert await store.remove([late.id]) == 1
        send = Caller._send
        lost: list[bytes] = []

        async def losing(self: Caller, connection: Any, call: Any) -> Any:
            reply = await send(self, connection, call)
            if not lost and call.script is not None and call.script.name == "settle":
                lost.append(reply)
                raise ConnectionLost("the cable was cut")
            return reply

        monkeypatch.setattr(Caller, "_send", losing)
        then = [NewJob("a", key="k"), NewJob("b"), NewJob("a")]
        refused = await store.settle([Done(job.lease, then=then), Done(late.lease, then=then)])
        assert [(each.lease, each.why) for each in refused] == [(late.lease, "lost")]
        assert lost == [b"1:l"]
        stats = (await store.stats()).queues
        assert {name: (each.done, each.ready) for name, each in stats.items()} == {"a": (1, 2), "b": (0, 1)}

    async def test_leave_nothing_on_a_full_server(self, store: RedisStorage, servers: ClusterSet) -> None:
        await store.enqueue([NewJob("a"), NewJob("b")])
        (job,) = await store.take("a", 1)
        owner = servers.owner(slot_of("a"))
        owner.ask("CONFIG", "SET", "maxmemory", "1mb")
        try:
            for then in ([NewJob("b")], [NewJob("a"), NewJob("b")]):
                with pytest.raises(StorageFull):
                    await store.settle([Done(job.lease, then=then)])
        finally:
            owner.ask("CONFIG", "SET", "maxmemory", "0")
        stats = (await store.stats()).queues
        assert {name: (each.taken, each.ready) for name, each in stats.items()} == {"a": (1, 0), "b": (0, 1)}
        assert await store.settle([Done(job.lease, then=[NewJob("a"), NewJob("b")])]) == []

    async def test_change_nothing_where_the_outbox_is_something_else(
        self, store: RedisStorage, servers: ClusterSet
    ) -> None:
        await store.enqueue([NewJob("a"), NewJob("b")])
        (job,) = await store.take("a", 1)
        home = await store._shards.registered("a")
        owner = servers.owner(home.slot)
        owner.ask("SET", home.outbox, "a text")
        end = Done(job.lease, then=[NewJob("a"), NewJob("b")])
        with pytest.raises(StorageError, match=r"outbox.*RENAME"):
            await store.settle([end])
        owner.ask("DEL", home.outbox)
        assert await store.settle([end]) == []
        stats = (await store.stats()).queues
        assert {name: (each.done, each.ready) for name, each in stats.items()} == {"a": (1, 1), "b": (0, 2)}

    async def test_of_many_outcomes_leave_together(self, store: RedisStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        await store.enqueue([NewJob("a")] * 20)
        await store.enqueue([NewJob("b")])
        jobs = await store.take("a", 20)
        scripts: list[str] = []
        prepare = Caller._prepare

        def noting(self: Caller, script: Any, *rest: Any) -> Any:
            if script.name != "collect":
                scripts.append(script.name)
            return prepare(self, script, *rest)

        monkeypatch.setattr(Caller, "_prepare", noting)
        assert await store.settle([Done(job.lease, then=[NewJob("a"), NewJob("b")]) for job in jobs]) == []
        assert scripts == ["settle", "deliver"]
        assert {name: each.ready for name, each in (await store.stats()).queues.items()} == {"a": 20, "b": 21}


async def test_an_outbox_is_emptied_in_parts_past_what_cannot_be_read(
    store: RedisStorage, servers: ClusterSet, caplog: pytest.LogCaptureFixture
) -> None:
    await store.enqueue([NewJob(Q), NewJob("other")])
    home = (await store._shards.registered(Q)).outbox
    owner = servers.owner(slot_of(Q))
    for n in range(350):
        run = Run(f"run.{n}", "other")
        run.jobs.append(NewJob("other"))
        await store._caller.command(slot_of(Q), "HSET", home, run.name, b"1 " + run.sealed())
    for n, text in enumerate(("", "garbage", "1 12:short", "1 3:\x93\x01\x02", "x 1:y")):
        owner.ask("HSET", home, f"damaged.{n}", text)
    with caplog.at_level("WARNING"):
        assert await store._outbox.sweep(0) == 350
    assert "cannot be read" in caplog.text
    assert (await store.stats()).queues["other"].ready == 351
    assert owner.ask("HLEN", home) == 5, "what cannot be read is left for people"


@pytest.mark.parametrize("partitions", [1, 3])
async def test_damaged_records_lose_no_good_job_and_raise_nothing(
    store: RedisStorage, servers: ClusterSet, partitions: int
) -> None:
    clock = ManualClock()
    url = f"{servers.url}?partitions={partitions}&prefix=damage{partitions}"
    async with await open_storage(url, clock=clock) as damaged:
        spoiled, left = await survive(damaged, clock, Random(partitions), 300)
        assert spoiled > 200
        assert len([job for job in left if (job.reason or "").startswith(REASON)]) > 100


async def test_a_slot_that_moves_to_another_node_stops_nobody(store: RedisStorage, servers: ClusterSet) -> None:
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
