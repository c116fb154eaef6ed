"""Batches that end in a word, and jobs that line up in few commands: the short ways give nothing up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from accoda import Bury, Done, Job, Lease, ManualClock, NewJob, Outcome, Retry, open_storage
from accoda.errors import StorageError
from accoda.storage.protocol import Store
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.whole import MOST
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import ClusterSet, RedisServer

Q = "q"
BASE = "accoda:{q}:q"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with need(RedisServer) as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def store(server: RedisServer, clock: ManualClock) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url, clock=clock) as store:
        yield store


@pytest_asyncio.fixture
async def other(server: RedisServer, clock: ManualClock) -> AsyncIterator[Store]:
    async with await open_storage(server.url, clock=clock) as store:
        yield store


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that are called."""
    names: list[str] = []
    prepare = Caller._prepare

    def noting(self: Caller, script: Any, *rest: Any) -> Any:
        names.append(script.name)
        return prepare(self, script, *rest)

    monkeypatch.setattr(Caller, "_prepare", noting)
    return names


async def taken(store: Store, count: int, **fields: Any) -> list[Job]:
    await store.enqueue([NewJob(Q, str(n).encode(), **fields) for n in range(count)])
    jobs = await store.take(Q, count, lease=60)
    assert len(jobs) == count
    return jobs


def done(jobs: Sequence[Job]) -> list[Outcome]:
    return [Done(job.lease) for job in jobs]


class TestAWholeBatch:
    @pytest.mark.parametrize("count", [1, 60, 4500])
    async def test_ends_by_its_name_alone_and_leaves_nothing(
        self, store: Store, server: RedisServer, sent: list[str], count: int
    ) -> None:
        jobs = await taken(store, count)
        sent.clear()
        assert await store.settle(done(jobs)) == []
        assert sent == ["finish"]
        stats = (await store.stats()).queues[Q]
        assert (stats.total, stats.done) == (0, count)
        assert server.ask("KEYS", f"{BASE}:*") == [f"{BASE}:meta"]

    async def test_is_refused_when_its_lease_is_over(self, store: Store, clock: ManualClock) -> None:
        jobs = await taken(store, 60)
        clock.advance(60)
        assert [each.why for each in await store.settle(done(jobs))] == ["lost"] * 60
        assert (await store.stats()).queues[Q].ready == 60

    async def test_is_refused_when_somebody_else_has_it(self, store: Store, other: Store, clock: ManualClock) -> None:
        jobs = await taken(store, 60)
        clock.advance(60)
        again = await other.take(Q, 60)
        assert [job.attempts for job in again] == [1] * 60
        assert [each.why for each in await store.settle(done(jobs))] == ["lost"] * 60
        assert await other.settle(done(again)) == []
        assert (await store.stats()).queues[Q].done == 60

    async def test_is_refused_in_the_job_that_was_removed(self, store: Store, other: Store) -> None:
        jobs = await taken(store, 60)
        assert await other.remove([jobs[7].id]) == 1
        refused = await store.settle(done(jobs))
        assert [(each.lease, each.why) for each in refused] == [(jobs[7].lease, "lost")]
        assert (await store.stats()).queues[Q].done == 59

    async def test_of_which_a_part_got_a_longer_lease_ends_job_by_job(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        jobs = await taken(store, 60)
        assert await other.extend([job.lease for job in jobs[:20]], 600) == []
        clock.advance(61)
        refused = await store.settle(done(jobs))
        assert {each.lease.id for each in refused} == {job.id for job in jobs[20:]}

    async def test_whose_lease_was_made_longer_is_still_whole(
        self, store: Store, clock: ManualClock, sent: list[str]
    ) -> None:
        jobs = await taken(store, 60)
        assert await store.extend([job.lease for job in jobs], 600) == []
        clock.advance(61)
        sent.clear()
        assert await store.settle(done(jobs)) == []
        assert sent == ["finish"]

    async def test_is_ended_once(self, store: Store) -> None:
        jobs = await taken(store, 60)
        assert await store.settle(done(jobs)) == []
        assert [each.why for each in await store.settle(done(jobs))] == ["lost"] * 60
        both = await taken(store, 60)
        first, second = await asyncio.gather(store.settle(done(both)), store.settle(done(both)))
        assert (len(first), len(second)) in ((0, 60), (60, 0))

    async def test_with_a_wrong_attempt_or_an_equal_lease_goes_the_long_way(
        self, store: Store, sent: list[str]
    ) -> None:
        jobs = await taken(store, 2)
        strange = [Done(Lease(Q, jobs[0].id, 3)), Done(Lease(Q, jobs[1].id, 0))]
        assert [each.lease.attempts for each in await store.settle(strange)] == [3]
        assert "finish" not in sent

    @pytest.mark.parametrize("kind", ["part", "retry", "bury", "result", "then", "key", "keep_for", "came back"])
    async def test_is_only_what_is_whole_done_and_plain(
        self, store: Store, server: RedisServer, sent: list[str], kind: str
    ) -> None:
        given: dict[str, dict[str, Any]] = {"key": {"key": "k"}, "keep_for": {"keep_for": 60.0}}
        fields = given.get(kind, {})
        jobs = await taken(store, 1 if kind == "key" else 3, **fields)
        if kind == "came back":
            await store.settle([Retry(job.lease) for job in jobs])
            jobs = await store.take(Q, 3)
        outcomes = done(jobs)
        last = jobs[-1].lease
        changed: dict[str, Outcome] = {"retry": Retry(last), "bury": Bury(last, "x"), "result": Done(last, result=b"r")}
        if kind == "part":
            outcomes = outcomes[:-1]
        elif kind == "then":
            outcomes[-1] = Done(last, then=[NewJob("next")])
        elif kind in changed:
            outcomes[-1] = changed[kind]
        sent.clear()
        assert await store.settle(outcomes) == []
        assert sent == ["settle"]
        if kind == "then":
            assert (await store.stats()).queues["next"].ready == 1

    async def test_goes_with_others_and_each_hears_of_its_own(self, store: Store, other: Store) -> None:
        await store.enqueue([NewJob(Q)] * 40)
        batches = [await store.take(Q, 4) for _ in range(10)]
        await other.remove([batches[3][0].id, batches[8][1].id])
        answers = await asyncio.gather(*(store.settle(done(jobs)) for jobs in batches))
        assert [len(refused) for refused in answers] == [0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
        assert (await store.stats()).queues[Q].done == 38

    async def test_and_another_end_in_one_call(self, store: Store, sent: list[str]) -> None:
        await store.enqueue([NewJob(Q)] * 5)
        jobs = [*await store.take(Q, 2), *await store.take(Q, 3)]
        sent.clear()
        assert await store.settle(done(jobs)) == []
        assert sent == ["finish"]

    async def test_is_forgotten_where_there_are_too_many(self, store: Store, sent: list[str]) -> None:
        await store.enqueue([NewJob(Q)] * (MOST + 1))
        batches = [await store.take(Q, 1) for _ in range(MOST + 1)]
        sent.clear()
        assert await store.settle(done(batches[0])) == []
        assert await store.settle(done(batches[-1])) == []
        assert sent == ["settle", "finish"]

    async def test_with_a_key_of_another_type_is_lost_to_its_caller(self, store: Store, server: RedisServer) -> None:
        jobs = await taken(store, 3)
        server.ask("RENAME", f"{BASE}:ends", "aside")
        server.ask("SET", f"{BASE}:ends", "text")
        assert [each.why for each in await store.settle(done(jobs))] == ["lost"] * 3
        assert server.ask("HLEN", f"{BASE}:taken") == 3

    async def test_of_several_partitions_ends_in_each(self, sent: list[str]) -> None:
        with need(ClusterSet) as servers:
            async with await open_storage(f"{servers.url}?partitions=2") as store:
                for _ in range(4):
                    await store.enqueue([NewJob(Q)] * 2)
                jobs = await store.take(Q, 8)
                assert len(jobs) == 8
                sent.clear()
                assert await store.settle(done(jobs)) == []
                assert [name for name in sent if name != "collect"] == ["finish", "finish"]  # that is the outbox's
                assert [each.why for each in await store.settle(done(jobs))] == ["lost"] * 8
                assert (await store.stats()).queues[Q].done == 8


class TestPlainJobs:
    @pytest.mark.parametrize("count", [1, 99, 100, 101, 250, 2500])
    async def test_get_ids_one_after_the_other_and_are_found_by_them(
        self, store: Store, sent: list[str], count: int
    ) -> None:
        await store.enqueue([NewJob(Q)] * 37)
        answers = await store.enqueue([NewJob(Q, b"%d" % n, rank=2.0, cost=3) for n in range(count)])
        assert [answer.id for answer in answers] == list(range(38, 38 + count))
        assert set(sent) == {"line_up"}
        for place in (0, count // 2, count - 1):
            found = await store.find(answers[place].id)
            assert found is not None
            assert (found.data, found.rank, found.cost, found.state) == (b"%d" % place, 2.0, 3, "ready")
        assert len(await store.take(Q, 37 + count)) == 37 + count

    async def test_may_have_ranks_of_their_own(self, store: Store, sent: list[str]) -> None:
        await store.enqueue([NewJob(Q, b"late", rank=7.5), NewJob(Q, b"soon", rank=-1e300), NewJob(Q, b"now")])
        assert sent == ["line_up"]
        jobs = await store.take(Q, 3)
        assert [(job.data, job.rank) for job in jobs] == [(b"soon", -1e300), (b"now", 0.0), (b"late", 7.5)]

    @pytest.mark.parametrize("field", ["ready", "ready:ids"])
    async def test_are_not_stored_beside_a_key_of_another_type(
        self, store: Store, server: RedisServer, field: str
    ) -> None:
        server.ask("SET", f"{BASE}:{field}", "text")
        with pytest.raises(StorageError, match=f"{field}"):
            await store.enqueue([NewJob(Q)])
        server.ask("DEL", f"{BASE}:{field}")
        assert server.ask("KEYS", f"{BASE}:*") == []
        assert len(await store.enqueue([NewJob(Q)])) == 1

    async def test_go_on_from_the_present_moment_where_the_counter_is_gone(
        self, store: Store, server: RedisServer, clock: ManualClock
    ) -> None:
        await store.enqueue([NewJob(Q)] * 3)
        for damage in (["DEL", "accoda:ids"], ["HSET", "accoda:ids", "last", "x"]):
            server.ask(*damage)
            assert (await store.enqueue([NewJob(Q)] * 2))[0].id > clock.now()

    async def test_replace_what_is_no_bucket(self, store: Store, server: RedisServer) -> None:
        server.ask("SET", f"{BASE}:ready:ids:{0:014d}", "text")
        (answer,) = await store.enqueue([NewJob(Q)])
        assert await store.find(answer.id) is not None

    async def test_of_a_full_bucket_are_forgotten_with_it(self, store: Store, server: RedisServer) -> None:
        await store.enqueue([NewJob(Q)] * 350)
        await store.settle(done(await store.take(Q, 330)))
        left = [job.id for job in await store.browse(Q, "ready")]
        assert left == list(range(331, 351))
        assert server.ask("ZCARD", f"{BASE}:ready:ids") == 1

    @pytest.mark.parametrize("size", [3, 15, 16, 40])
    async def test_that_are_the_last_of_a_bucket_leave_nothing_of_it(
        self, store: Store, server: RedisServer, size: int
    ) -> None:
        await store.enqueue([NewJob(Q)] * 99)  # the first bucket begins with 1
        await store.enqueue([NewJob(Q)] * 50)
        await store.settle(done(await store.take(Q, 99 - size)))
        assert server.ask("HLEN", f"{BASE}:ready:ids:{0:014d}") == size
        jobs = await store.take(Q, size + 20)  # the rest of it, and a part of the next
        assert server.ask("EXISTS", f"{BASE}:ready:ids:{0:014d}") == 0
        assert server.ask("ZRANGE", f"{BASE}:ready:ids", 0, -1) == [f"{1:014d}"]
        assert server.ask("HLEN", f"{BASE}:ready:ids:{1:014d}") == 30
        assert await store.settle(done(jobs)) == []

    async def test_that_make_a_large_line_larger_help_its_table_grow(self, store: Store, server: RedisServer) -> None:
        fill = "for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('ZADD', KEYS[1], '0', n) end"

        async def looks() -> int:
            server.ask("CONFIG", "RESETSTAT")
            await store.enqueue([NewJob(Q)] * 1000)
            found = re.search(r"cmdstat_zmscore:calls=(\d+)", str(server.ask("INFO", "commandstats")))
            return int(found[1]) if found else 0

        power = 1 << 20
        server.ask("EVAL", fill, 1, f"{BASE}:ready", 1, power - 2000)
        assert await looks() == 0, "not before the table has doubled"
        server.ask("EVAL", fill, 1, f"{BASE}:ready", power, power + 2000)
        assert await looks() == 2, "6,000 looks, by 4,000"
        server.ask("EVAL", fill, 1, f"{BASE}:ready", power + 2000, power * 151 // 100)
        assert await looks() == 0, "nor when it has long moved"

    async def test_are_taken_from_what_is_no_bucket(self, store: Store, server: RedisServer) -> None:
        await store.enqueue([NewJob(Q)] * 40)
        server.ask("SET", f"{BASE}:ready:ids:{0:014d}", "text")
        assert len(await store.take(Q, 20)) == 20
        assert server.ask("EXISTS", f"{BASE}:ready:ids:{0:014d}", f"{BASE}:ready:ids") == 0
        assert len(await store.take(Q, 40)) == 20

    async def test_are_taken_after_what_is_due_beside_them(self, store: Store, clock: ManualClock) -> None:
        await store.enqueue([NewJob(Q, b"ready"), NewJob(Q, b"soon", start_at=clock.now() + 10, rank=-1.0)])
        clock.advance(0.009)
        assert [job.data for job in await store.take(Q, 1)] == [b"ready"]
        await store.enqueue([NewJob(Q, b"next")])
        clock.advance(0.001)
        assert [job.data for job in await store.take(Q, 2)] == [b"soon", b"next"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the looks of sleepers were answered."""
    answers: list[Any] = []
    run = Caller.run

    async def noting(self: Caller, script: Any, *rest: Any, **named: Any) -> Any:
        answer = await run(self, script, *rest, **named)
        if script.name == "look":
            answers.append(answer)
        return answer

    monkeypatch.setattr(Caller, "run", noting)
    return answers


async def asleep(looks: list[Any], count: int = 1) -> None:
    """Returns when the sleeper has looked, and sleeps."""
    async with asyncio.timeout(20):
        while len(looks) < count:
            await asyncio.sleep(0.001)
    for _ in range(20):
        await asyncio.sleep(0)


class TestASleeper:
    async def test_who_is_told_of_a_job_needs_no_second_look(
        self, store: Store, other: Store, looks: list[Any]
    ) -> None:
        waiting = asyncio.create_task(store.wait([Q], 60))
        await asleep(looks)
        await other.enqueue([NewJob(Q)])
        assert await waiting
        assert len(looks) == 1

    async def test_needs_none_at_the_start_of_a_delayed_job(
        self, store: Store, clock: ManualClock, looks: list[Any]
    ) -> None:
        await store.enqueue([NewJob(Q, delay=5)])
        waiting = asyncio.create_task(store.wait([Q], 60))
        await asleep(looks)
        clock.advance(5)
        assert await waiting
        assert len(looks) == 1

    async def test_is_not_deceived_by_a_hint_that_was_slower_than_his_look(
        self, store: Store, server: RedisServer, clock: ManualClock, looks: list[Any]
    ) -> None:
        await store.enqueue([NewJob(Q)] * 3)
        assert len(await store.take(Q, 3)) == 3
        waiting = asyncio.create_task(store.wait([Q], 30))
        await asleep(looks)
        server.ask("PUBLISH", f"{BASE}:wake", "3")
        await asleep(looks, 2)
        assert not waiting.done()
        clock.advance(30)
        assert not await waiting

    async def test_of_a_paused_queue_sleeps_on(
        self, store: Store, other: Store, clock: ManualClock, looks: list[Any]
    ) -> None:
        await store.pause(Q)
        waiting = asyncio.create_task(store.wait([Q], 60))
        await asleep(looks)
        await other.enqueue([NewJob(Q)])
        await asleep(looks, 2)
        assert not waiting.done()
        clock.advance(60)
        assert not await waiting
