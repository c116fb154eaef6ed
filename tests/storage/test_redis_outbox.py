"""A Redis Cluster: jobs for other shards, and what was left behind of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet

from accoda import Bury, Done, NewJob, Outcome, Retry, open_storage
from accoda.errors import StorageFull
from accoda.model import ById, ByKey, Remove
from accoda.storage.redis.client import Client, ConnectionLost
from accoda.storage.redis.keys import slot_of
from accoda.storage.redis.outbox import Outbox, Run, seal
from accoda.storage.redis.scripts import script
from accoda.storage.redis.storage import RedisStorage

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


class TestJobsForOtherShards:
    async def test_are_stored_all_together_and_answered_in_order(self, store: RedisStorage) -> None:
        names = [f"queue-{n % 5}" for n in range(20)]
        answers = await store.enqueue([NewJob(name) for name in names])
        assert [answer.id for answer in answers] == sorted(answer.id for answer in answers)
        for answer, name in zip(answers, names, strict=True):
            info = (await store.look(ById(answer.id))).job
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
        assert await store.change([Remove(late.id)]) == 1
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
        runs = [Run(store._client.new_name(), tag) for tag in ("b", "c")]
        for run in runs:
            run.jobs = [NewJob(run.tag, b"1"), NewJob(run.tag, b"2", key="k")]
        posted = [text for run in runs for text in (run.name, seal(run.tag, run.jobs))]
        await store._client.once(script("post"), home, [home.outbox], *posted)
        # The sender delivered the first run and died before it could delete it.
        async with await opened(servers) as second, await opened(servers) as third:
            await store._outbox.sweep(left_after=1_000_000)
            assert (await store.stats()).queues == {}
            await store._outbox.deliver(runs[0])
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
                following = (await other.look(ByKey(Q, key))).job
                assert following is not None
                assert (following.data, following.state) == (b"next", "delayed")
                assert following.id > first.id
                assert (await other.look(ByKey("elsewhere", key))).job is None
                assert await other._outbox.sweep(left_after=0) == 1
                assert (await other.look(ByKey("elsewhere", key))).job is not None
                assert (await other.look(ByKey(Q, key))).job == following
            assert {name: each.total for name, each in (await other.stats()).queues.items()} == {Q: 6, "elsewhere": 6}

    async def test_keep_their_order_and_those_of_refused_outcomes_are_not_stored(
        self, store: RedisStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.enqueue([NewJob("a")] * 4)
        one, late, two, again = await store.take("a", 4)
        assert await store.change([Remove(late.id)]) == 1
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
        assert await store.change([Remove(late.id)]) == 1
        send = Client._send
        lost: list[bytes] = []

        async def losing(self: Client, connection: Any, request: Any) -> Any:
            reply = await send(self, connection, request)
            if not lost and request.script is not None and request.script.name == "settle":
                lost.append(reply)
                raise ConnectionLost("the cable was cut")
            return reply

        monkeypatch.setattr(Client, "_send", losing)
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

    async def test_of_many_outcomes_leave_together(self, store: RedisStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        await store.enqueue([NewJob("a")] * 20)
        await store.enqueue([NewJob("b")])
        jobs = await store.take("a", 20)
        scripts: list[str] = []
        prepare = Client._prepare

        def noting(self: Client, script: Any, *rest: Any) -> Any:
            if script.name != "collect":
                scripts.append(script.name)
            return prepare(self, script, *rest)

        monkeypatch.setattr(Client, "_prepare", noting)
        assert await store.settle([Done(job.lease, then=[NewJob("a"), NewJob("b")]) for job in jobs]) == []
        assert scripts == ["settle", "enqueue"]
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
        await store._client.command(slot_of(Q), "HSET", home, run.name, b"1 " + seal(run.tag, run.jobs))
    for n, text in enumerate(("", "garbage", "1 12:short", "1 3:\x93\x01\x02", "x 1:y")):
        owner.ask("HSET", home, f"damaged.{n}", text)
    with caplog.at_level("WARNING"):
        assert await store._outbox.sweep(0) == 350
    assert "cannot be read" in caplog.text
    assert (await store.stats()).queues["other"].ready == 351
    assert owner.ask("HLEN", home) == 5, "what cannot be read is left for people"
