"""A Redis Cluster: jobs for other shards, and what was left behind of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
import pytest_asyncio
from proof.servers.redis import ClusterSet

from accoda import Bury, Done, Job, NewJob, Outcome, Retry, open_storage
from accoda.errors import StorageFull, StorageUnavailable
from accoda.model import REPORTS, ById, ByKey, Cancel, Remove
from accoda.storage.redis.client import Client, ConnectionLost
from accoda.storage.redis.keys import slot_of
from accoda.storage.redis.outbox import Outbox, Run, seal
from accoda.storage.redis.scripts import script
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
        runs = [
            Run(store._client.new_name(), {tag: [NewJob(tag, b"1"), NewJob(tag, b"2", key="k")]}) for tag in ("b", "c")
        ]
        posted = [text for run in runs for tag, jobs in run.jobs.items() for text in (run.name, seal(tag, jobs))]
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


async def die_before_delivery(call: Coroutine[Any, Any, Any], patch: pytest.MonkeyPatch) -> None:
    """A sender that dies after its script, before it has delivered anything of the outbox."""
    posted = asyncio.Event()

    async def last_breath(*_: Any) -> None:
        posted.set()
        await asyncio.Event().wait()

    with patch.context() as dying:
        dying.setattr(Outbox, "deliver", last_breath)
        calling = asyncio.create_task(call)
        await posted.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)


def lose_a_reply(script: str, patch: pytest.MonkeyPatch) -> list[bytes]:
    """The connection breaks before the first reply of this script arrives. It is in the list then."""
    send = Client._send
    lost: list[bytes] = []

    async def losing(self: Client, connection: Any, request: Any) -> Any:
        reply = await send(self, connection, request)
        if not lost and request.script is not None and request.script.name == script:
            lost.append(reply)
            raise ConnectionLost("the cable was cut")
        return reply

    patch.setattr(Client, "_send", losing)
    return lost


def note_scripts(patch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that are called from now on, but for looks into the outboxes."""
    names: list[str] = []
    prepare = Client._prepare

    def noting(self: Client, script: Any, *rest: Any) -> Any:
        if script.name != "collect":
            names.append(script.name)
        return prepare(self, script, *rest)

    patch.setattr(Client, "_prepare", noting)
    return names


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
                await die_before_delivery(sender.settle([Done(job.lease, then=then)]), monkeypatch)
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
        await die_before_delivery(store.settle(outcomes), monkeypatch)
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
        lost = lose_a_reply("settle", monkeypatch)
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
        scripts = note_scripts(monkeypatch)
        assert await store.settle([Done(job.lease, then=[NewJob("a"), NewJob("b")]) for job in jobs]) == []
        assert scripts == ["settle", "enqueue"]
        assert {name: each.ready for name, each in (await store.stats()).queues.items()} == {"a": 20, "b": 21}


FLOW = "flow-é 7"


def member(queue: str = Q, key: str = "m", flow: str = FLOW) -> NewJob:
    return NewJob(queue, key=key, keep_for=60.0, reports_to=flow)


def note(job: Job, flow: str = FLOW) -> NewJob:
    """What a job leaves for its flow."""
    return NewJob(REPORTS, key=flow, on_duplicate="attach", waiter=b"note of %d" % job.id)


async def told(store: RedisStorage, flow: str = FLOW) -> list[str]:
    """What a flow was told, in order."""
    waiters = (await store.look(ByKey(REPORTS, flow), waiters_after=0)).waiters
    return [" ".join(waiter.decode().split(" ")[: 3 if waiter.startswith(b"note") else 2]) for waiter in waiters]


async def end_by_settle(store: RedisStorage) -> str:
    (job,) = await store.take(Q, 1)
    assert await store.settle([Done(job.lease, result=b"r")]) == []
    return f"done {job.id}"


async def end_by_change(store: RedisStorage) -> str:
    (info,) = await store.browse(Q, "ready")
    assert await store.change([Cancel(info.id)]) == 1
    return f"cancelled {info.id}"


async def end_by_purge(store: RedisStorage) -> str:
    (info,) = await store.browse(Q, "ready")
    assert await store.purge(Q, "ready") == 1
    return f"removed {info.id}"


ENDS = {"settle": end_by_settle, "change": end_by_change, "purge": end_by_purge}


class TestReportsForAnotherShard:
    @pytest.mark.parametrize("verb", ENDS)
    async def test_have_arrived_when_the_call_is_back(
        self, store: RedisStorage, servers: ClusterSet, verb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.enqueue([member()])
        await store._shards.registered("accoda")
        scripts = note_scripts(monkeypatch)
        report = await ENDS[verb](store)
        assert scripts[-2:] == [verb, "enqueue"]
        assert await told(store) == [report]
        assert [key for master in servers.masters for key in master.ask("KEYS", "*outbox*")] == []

    @pytest.mark.parametrize("verb", ENDS)
    async def test_arrive_once_though_the_reply_was_lost(
        self, store: RedisStorage, verb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.enqueue([member()])
        lost = lose_a_reply(verb, monkeypatch)
        report = await ENDS[verb](store)
        assert len(lost) == 1
        assert await told(store) == [report]
        assert await store._outbox.sweep(left_after=0) == 0

    @pytest.mark.parametrize("verb", ENDS)
    async def test_arrive_once_though_their_sender_died_and_several_move_them(
        self, store: RedisStorage, servers: ClusterSet, verb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (job,) = await store.enqueue([member()])
        await die_before_delivery(ENDS[verb](store), monkeypatch)
        assert await told(store) == []
        async with await opened(servers) as second, await opened(servers) as third:
            await asyncio.gather(*(each._outbox.sweep(left_after=0) for each in (second, third, second)))
            (report,) = await told(third)
            assert report.endswith(f" {job.id}")
            assert await third._outbox.sweep(left_after=0) == 0

    async def test_of_one_that_was_delivered_but_not_cleared_arrive_once(
        self, store: RedisStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def die(*_: Any) -> None:
            raise StorageUnavailable("the client died")

        await store.enqueue([member()])
        with monkeypatch.context() as dying:
            dying.setattr(Outbox, "clear", die)
            report = await end_by_settle(store)
        assert await store._outbox.sweep(left_after=0) == 1
        assert await told(store) == [report]

    @pytest.mark.parametrize("options", ["", "partitions=3"])
    async def test_come_after_what_their_jobs_left_though_the_sender_died(
        self, store: RedisStorage, servers: ClusterSet, monkeypatch: pytest.MonkeyPatch, options: str
    ) -> None:
        """Also where a third shard sends something in between, so that the first one sends two runs."""
        queues = [f"{queue}{n}" for n in range(4) for queue in ("a", "b.x", "accoda.x", "a")]
        async with await opened(servers, options) as sender, await opened(servers, options) as other:
            for n, queue in enumerate(queues):
                await sender.enqueue([member(queue, f"k{n}", f"flow-{n % 5}")])
            jobs = [(await sender.take(queue, 1))[0] for queue in queues]
            flows = [f"flow-{int((job.key or '')[1:]) % 5}" for job in jobs]
            outcomes = [Done(job.lease, [note(job, flow)]) for job, flow in zip(jobs, flows, strict=True)]
            await die_before_delivery(sender.settle(outcomes), monkeypatch)
            await other._outbox.sweep(left_after=0)
            heard = {flow: await told(other, flow) for flow in flows}
        for job, flow in zip(jobs, flows, strict=True):
            of_it = [each for each in heard[flow] if each.endswith(f" {job.id}")]
            assert of_it == [f"note of {job.id}", f"done {job.id}"]
        assert sum(map(len, heard.values())) == 2 * len(jobs)

    async def test_keep_the_order_of_the_outcomes(self, store: RedisStorage) -> None:
        await store.enqueue([member(key=f"k{n}") for n in range(4)])
        jobs = await store.take(Q, 4)
        outcomes = [Done(job.lease, [note(job)] if n == 2 else []) for n, job in enumerate(jobs)]
        assert await store.settle(outcomes) == []
        assert await told(store) == [f"note of {jobs[2].id}", *(f"done {job.id}" for job in jobs)]

    async def test_those_of_the_flows_own_family_are_added_by_the_step_itself(
        self, store: RedisStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for verb, expected in (("settle", "done"), ("change", "cancelled"), ("purge", "removed")):
            (answer,) = await store.enqueue([member("accoda.x")])
            jobs = await store.take("accoda.x", 1) if verb == "settle" else []
            with monkeypatch.context() as noted:
                scripts = note_scripts(noted)
                if verb == "settle":
                    assert await store.settle([Done(jobs[0].lease)]) == []
                elif verb == "change":
                    assert await store.change([Cancel(answer.id, queue="accoda.x")]) == 1
                else:
                    assert await store.purge("accoda.x", "ready") == 1
                assert scripts == [verb]
            assert (await told(store))[-1] == f"{expected} {answer.id}"

    async def test_those_of_the_flows_own_family_wait_behind_what_has_to_wait(
        self, store: RedisStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.enqueue([NewJob(Q), member("accoda.x")])
        (first,), (second,) = await store.take(Q, 1), await store.take("accoda.x", 1)
        outcomes: list[Outcome] = [Done(first.lease, [note(first)]), Done(second.lease, [note(second)])]
        await die_before_delivery(store.settle(outcomes), monkeypatch)
        assert await told(store) == []
        assert await store._outbox.sweep(left_after=0) == 2
        of_it = [each for each in await told(store) if each.endswith(f" {second.id}")]
        assert of_it == [f"note of {second.id}", f"done {second.id}"]

    async def test_those_of_refused_outcomes_do_not_leave(self, store: RedisStorage) -> None:
        await store.enqueue([member(key="one"), member(key="two")])
        one, two = await store.take(Q, 2)
        assert await store.change([Cancel(two.id)]) == 1
        refused = await store.settle([Done(one.lease, [note(one)]), Done(two.lease, [note(two)])])
        assert [(each.lease, each.why) for each in refused] == [(two.lease, "cancelled")]
        assert await told(store) == [f"cancelled {two.id}", f"note of {one.id}", f"done {one.id}"]

    async def test_wait_in_the_outbox_until_the_shard_of_the_flows_has_room(
        self, store: RedisStorage, servers: ClusterSet
    ) -> None:
        full = servers.owner(slot_of("accoda"))
        queue = next(f"q{n}" for n in range(100) if servers.owner(slot_of(f"q{n}")) is not full)
        await store.enqueue([member(queue)])
        (job,) = await store.take(queue, 1)
        await store._shards.registered("accoda")
        full.ask("CONFIG", "SET", "maxmemory", "1mb")
        try:
            assert await store.settle([Done(job.lease)]) == []
            assert await told(store) == []
        finally:
            full.ask("CONFIG", "SET", "maxmemory", "0")
        assert await store._outbox.sweep(left_after=0) == 1
        assert await told(store) == [f"done {job.id}"]


async def test_an_outbox_is_emptied_in_parts_past_what_cannot_be_read(
    store: RedisStorage, servers: ClusterSet, caplog: pytest.LogCaptureFixture
) -> None:
    await store.enqueue([NewJob(Q), NewJob("other")])
    home = (await store._shards.registered(Q)).outbox
    owner = servers.owner(slot_of(Q))
    for n in range(350):
        await store._client.command(slot_of(Q), "HSET", home, f"run.{n}", b"1 " + seal("other", [NewJob("other")]))
    for n, text in enumerate(("", "garbage", "1 12:short", "1 3:\x93\x01\x02", "x 1:y", "1 4,9:flow")):
        owner.ask("HSET", home, f"damaged.{n}", text)
    with caplog.at_level("WARNING"):
        assert await store._outbox.sweep(0) == 350
    assert "cannot be read" in caplog.text
    assert (await store.stats()).queues["other"].ready == 351
    assert owner.ask("HLEN", home) == 6, "what cannot be read is left for people"
