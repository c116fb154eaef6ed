"""Jobs in Redis: their index by id, batches, joined calls, and what they leave behind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer

from accoda import Bury, Done, Job, Lease, ManualClock, NewJob, Outcome, Retry, open_storage
from accoda.model import REPORTS, ById, ByKey, Remove, Report
from accoda.storage.protocol import Store
from accoda.storage.redis.client import Client, ConnectionLost

Q = "q"
BASE = "accoda:q"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that are called."""
    names: list[str] = []
    prepare = Client._prepare

    def noting(self: Client, script: Any, *rest: Any) -> Any:
        names.append(script.name)
        return prepare(self, script, *rest)

    monkeypatch.setattr(Client, "_prepare", noting)
    return names


async def taken(store: Store, count: int, **fields: Any) -> list[Job]:
    await store.enqueue([NewJob(Q, str(n).encode(), **fields) for n in range(count)])
    jobs = await store.take(Q, count, lease=60)
    assert len(jobs) == count
    return jobs


def done(jobs: Sequence[Job]) -> list[Outcome]:
    return [Done(job.lease) for job in jobs]


class TestEnqueue:
    @pytest.mark.parametrize("count", [1, 99, 100, 101, 250, 2500])
    async def test_jobs_get_ids_one_after_the_other_and_are_found_by_them(self, store: Store, count: int) -> None:
        await store.enqueue([NewJob(Q)] * 37)
        answers = await store.enqueue([NewJob(Q, b"%d" % n, rank=2.0, cost=3) for n in range(count)])
        assert [answer.id for answer in answers] == list(range(38, 38 + count))
        for place in (0, count // 2, count - 1):
            found = (await store.look(ById(answers[place].id))).job
            assert found is not None
            assert (found.data, found.rank, found.cost, found.state) == (b"%d" % place, 2.0, 3, "ready")
        assert len(await store.take(Q, 37 + count)) == 37 + count

    async def test_runs_of_jobs_that_differ_keep_their_order(self, store: Store) -> None:
        jobs = [
            NewJob(Q, b"late", rank=7.5),
            NewJob(Q, b"soon", rank=-1e300),
            NewJob(Q, b"now"),
            NewJob("other", b"there", cost=3),
            NewJob(Q, b"delayed", delay=60),
            NewJob(Q, b"keyed", key='k,"1'),
            NewJob(Q, b"kept", keep_for=0.25),
            NewJob(Q, b"too", key='k,"1'),
        ]
        answers = await store.enqueue(jobs)
        assert [answer.id for answer in answers] == [1, 2, 3, 4, 5, 6, 7, 6]
        taken = await store.take(Q, 9)
        assert [(job.data, job.rank) for job in taken] == [
            (b"soon", -1e300), (b"now", 0.0), (b"keyed", 0.0), (b"kept", 0.0), (b"late", 7.5),
        ]  # fmt: skip
        assert taken[2].key == 'k,"1'
        assert [job.cost for job in await store.take("other", 1)] == [3]

    async def test_of_several_ends_only_the_follow_ups_of_those_that_were_applied_are_stored(
        self, store: Store
    ) -> None:
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

    async def test_jobs_that_attach_in_one_call_find_the_job_as_the_ones_before_left_it(self, store: Store) -> None:
        joins = NewJob(Q, key="k", on_duplicate="attach", waiter=b"w")
        await store.enqueue([joins])
        (job,) = await store.take(Q, 1)
        replaces = NewJob(Q, b"new", key="k", on_duplicate="replace", waiter=b"r")
        answers = await store.enqueue(
            [joins, replaces, joins, NewJob(Q, key="k"), joins, replaces, NewJob(Q, key="other")]
        )
        assert [answer.waiters for answer in answers] == [2, 3, 4, 4, 5, 6, 0]
        whats = ["attached", "replaced", "attached", "kept", "attached", "replaced", "created"]
        assert [answer.what for answer in answers] == whats
        assert [each.why for each in await store.settle([Done(job.lease)])] == ["lost"]
        assert [(each.data, each.waiters) for each in await store.take(Q, 1)] == [(b"new", 6)]


class TestTheIndexById:
    async def test_full_buckets_go_with_their_jobs(self, store: Store, server: RedisServer) -> None:
        await store.enqueue([NewJob(Q)] * 350)
        await store.settle(done(await store.take(Q, 330)))
        left = [job.id for job in await store.browse(Q, "ready")]
        assert left == list(range(331, 351))
        assert server.ask("ZCARD", f"{BASE}:ready:ids") == 1

    @pytest.mark.parametrize("size", [3, 15, 16, 40])
    async def test_the_last_jobs_of_a_bucket_leave_nothing_of_it(
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

    async def test_finds_jobs_in_every_state(self, store: Store) -> None:
        ids = [
            answer.id for answer in await store.enqueue([NewJob(Q, rank=float(n % 7), keep_for=60) for n in range(350)])
        ]
        jobs = await store.take(Q, 200)
        await store.settle([*done(jobs[:80]), *(Bury(job.lease, "x") for job in jobs[80:160])])
        states = {job.id: "done" for job in jobs[:80]} | {job.id: "dead" for job in jobs[80:160]}
        states |= {job.id: "taken" for job in jobs[160:]}
        found = [(await store.look(ById(id))).job for id in ids]
        assert [job.state for job in found if job is not None] == [states.get(id, "ready") for id in ids]


class TestTake:
    @pytest.mark.parametrize("turns", range(6))
    async def test_that_is_cancelled_swallows_nothing(self, store: Store, turns: int) -> None:
        await store.enqueue([NewJob(Q)] * 8)
        taking = [asyncio.create_task(store.take(Q, 2)) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in taking[1:]:
            task.cancel()
        first, *_ = await asyncio.gather(*taking, return_exceptions=True)
        assert isinstance(first, list)
        while (stats := (await store.stats()).queues[Q]).taken != 2:
            await asyncio.sleep(0)
        assert (stats.ready, stats.expired) == (6, 0)

    @pytest.mark.parametrize("turns", range(6))
    async def test_of_many_that_is_cancelled_swallows_nothing(self, store: Store, turns: int) -> None:
        await store.enqueue([NewJob(Q)] * 20)
        taking = asyncio.create_task(store.take(Q, 15))
        for _ in range(turns):
            await asyncio.sleep(0)
        taking.cancel()
        (taken,) = await asyncio.gather(taking, return_exceptions=True)
        held = len(taken) if isinstance(taken, list) else 0  # it may have been faster
        while (stats := (await store.stats()).queues[Q]).ready != 20 - held:
            await asyncio.sleep(0)
        assert (stats.taken, stats.expired) == (held, 0)

    async def test_gives_what_is_due_in_its_place(self, store: Store, clock: ManualClock) -> None:
        await store.enqueue([NewJob(Q, b"ready"), NewJob(Q, b"soon", start_at=clock.now() + 10, rank=-1.0)])
        clock.advance(0.009)
        assert [job.data for job in await store.take(Q, 1)] == [b"ready"]
        await store.enqueue([NewJob(Q, b"next")])
        clock.advance(0.001)
        assert [job.data for job in await store.take(Q, 2)] == [b"soon", b"next"]

    async def test_of_more_than_one_command_can_carry_counts_every_crash(
        self, store: Store, clock: ManualClock
    ) -> None:
        many = 9000
        await store.enqueue([NewJob(Q)] * many)
        await store.take(Q, many, lease=5)
        clock.advance(5)
        jobs = [job for _ in range(9) for job in await store.take(Q, many)]  # a thousand with each call
        assert {(job.attempts, job.tries, job.crashes) for job in jobs} == {(1, 0, 1)}
        assert len(jobs) == many


class TestSettle:
    @pytest.mark.parametrize("count", [1, 60, 4500])
    async def test_of_all_jobs_leaves_nothing_but_the_counters(
        self, store: Store, server: RedisServer, count: int
    ) -> None:
        jobs = await taken(store, count)
        await store.settle([Retry(job.lease, reason="again") for job in jobs[::2]])
        again = await store.take(Q, count)
        assert await store.settle(done([*jobs[1::2], *again])) == []
        stats = (await store.stats()).queues[Q]
        assert (stats.total, stats.done) == (0, count)
        assert server.ask("KEYS", f"{BASE}:*") == [f"{BASE}:meta"]

    async def test_refuses_what_was_removed_extended_or_taken_again_and_nothing_else(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        jobs = await taken(store, 60)
        assert await other.extend([job.lease for job in jobs[:20]], 600) == []
        assert await other.change([Remove(jobs[7].id)]) == 1
        clock.advance(61)
        again = await other.take(Q, 10)
        refused = await store.settle(done(jobs))
        assert {each.lease.id for each in refused} == {jobs[7].id, *(job.id for job in jobs[20:])}
        assert {each.why for each in refused} == {"lost"}
        assert await other.settle(done(again)) == []
        assert (await store.stats()).queues[Q].done == 29

    async def test_refuses_a_wrong_attempt_and_the_second_of_two_outcomes(self, store: Store) -> None:
        one, two = await taken(store, 2)
        wrong = Lease(Q, one.id, 3, 0)
        outcomes: list[Outcome] = [
            Done(wrong), Done(two.lease), Retry(two.lease), Done(one.lease), Done(one.lease),
        ]  # fmt: skip
        refused = await store.settle(outcomes)
        assert [each.lease for each in refused] == [wrong, two.lease, one.lease]
        stats = (await store.stats()).queues[Q]
        assert (stats.done, stats.retried, stats.total) == (2, 0, 0)

    async def test_of_several_takes_reads_and_deletes_their_jobs_together(
        self, store: Store, server: RedisServer, clock: ManualClock
    ) -> None:
        jobs = []
        for _ in range(5):
            jobs += await taken(store, 2)
            clock.advance(1)
        server.ask("CONFIG", "RESETSTAT")
        assert await store.settle(done(jobs)) == []
        calls = dict(re.findall(r"cmdstat_(\w+):calls=(\d+)", server.ask("INFO", "commandstats")))
        assert calls["hmget"] == "2"  # of all jobs, and of the rules of the queue
        assert (await store.stats()).queues[Q].done == 10

    async def test_refuses_ids_that_are_too_long_and_nothing_beside_them(self, store: Store) -> None:
        jobs = await taken(store, 20)
        wrong = [replace(job.lease, id=(1 << 63) - 1 - job.id) for job in jobs]
        leases = [lease for pair in zip(wrong, (job.lease for job in jobs), strict=True) for lease in pair]
        assert [each.lease for each in await store.settle(list(map(Done, leases)))] == wrong
        assert (await store.stats()).queues[Q].done == 20

    async def test_reads_a_batch_once_for_all_its_jobs(self, store: Store, server: RedisServer) -> None:
        # It names all of them: read for each job, a settle of thousands would keep the server busy for many seconds.
        leases = [job.lease for job in await taken(store, 50)]
        server.ask("CONFIG", "RESETSTAT")
        assert await store.settle([*map(Retry, leases[:25]), *(Bury(lease, "") for lease in leases[25:])]) == []
        reads = re.search(r"cmdstat_hget:calls=(\d+)", server.ask("INFO", "commandstats"))
        assert reads is not None
        assert int(reads[1]) <= 2

    async def test_of_several_partitions_is_one_step_in_each(self, sent: list[str]) -> None:
        with need(ClusterSet) as servers:
            async with await open_storage(f"{servers.url}?partitions=2") as store:
                for _ in range(4):
                    await store.enqueue([NewJob(Q)] * 2)
                jobs = await store.take(Q, 8)
                assert len(jobs) == 8
                sent.clear()
                assert await store.settle(done(jobs)) == []
                assert [name for name in sent if name != "collect"] == ["settle", "settle"]  # that is the outbox's
                assert [each.why for each in await store.settle(done(jobs))] == ["lost"] * 8
                assert (await store.stats()).queues[Q].done == 8


class TestReports:
    async def test_are_written_as_the_model_writes_them(self, store: Store, clock: ManualClock) -> None:
        keys = ["a b,é", "c", "d"]
        await store.enqueue([NewJob(Q, key=key, reports_to="flow, 1\nö") for key in keys])
        done, dead, _ = await store.take(Q, 3)
        assert await store.settle([Done(done.lease, result=b"\0\n"), Bury(dead.lease, "wörn\nout")]) == []
        assert await store.purge(Q, "taken") == 1
        now = clock.now()
        assert (await store.look(ByKey(REPORTS, "flow, 1\nö"), waiters_after=0)).waiters == (
            Report("done", 1, 0, now, 2, keys[0], b"\0\n").wire(),
            Report("dead", 2, 0, now, -1, keys[1], "wörn\nout".encode()).wire(),
            Report("removed", 3, 0, now, -1, keys[2]).wire(),
        )

    @pytest.mark.parametrize("verb", ["settle", "change", "purge"])
    async def test_are_added_once_though_the_reply_was_lost(
        self, store: Store, verb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.enqueue([NewJob(Q, key="k", reports_to="flow")])
        (job,) = await store.take(Q, 1)
        send = Client._send
        lost: list[Any] = []

        async def losing(self: Client, connection: Any, request: Any) -> Any:
            reply = await send(self, connection, request)
            if request.script is not None and request.script.name == verb and len(lost) < 2:
                lost.append(reply)
                raise ConnectionLost("the cable was cut")
            return reply

        monkeypatch.setattr(Client, "_send", losing)
        if verb == "settle":
            assert await store.settle([Done(job.lease)]) == []
        elif verb == "change":
            assert await store.change([Remove(job.id)]) == 1
        else:
            assert await store.purge(Q, "taken") == 1
        assert len(lost) == 2
        assert len((await store.look(ByKey(REPORTS, "flow"), waiters_after=0)).waiters) == 1

    async def test_of_a_purge_of_flows_are_not_purged_by_it(self, store: Store) -> None:
        await store.enqueue([NewJob(REPORTS, key="child", reports_to="parent"), NewJob(REPORTS, key="parent")])
        assert await store.purge(REPORTS, "ready") == 2
        (report,) = (await store.look(ByKey(REPORTS, "parent"), waiters_after=0)).waiters
        assert Report.read(report).key == "child"

    async def test_take_no_room_in_a_job_that_has_none(
        self, store: Store, server: RedisServer, clock: ManualClock
    ) -> None:
        await store.enqueue([NewJob(Q, b"x", key="k,1", cost=3), NewJob(Q, b"y", key="k", cost=3, reports_to="f,1")])
        now = clock.now()
        records = server.ask("ZRANGE", f"{BASE}:ready", 0, -1)
        assert [record.replace(str(now), "now") for record in records] == [
            "0000000000000001,0,,\tk,1\0now,,0,3\0\0\0x",
            "0000000000000002,0,,\tk\0now,,0,3,f,1\0\0\0y",
        ]


class TestCallsThatGoTogether:
    async def test_each_get_their_own_answers(self, store: Store) -> None:
        answers = await asyncio.gather(
            *(store.enqueue([NewJob(Q, str(n).encode(), key=f"k{n % 7}" if n % 2 else None)]) for n in range(40))
        )
        ids = {answer.id for (answer,) in answers}
        assert len(ids) == 20 + 7
        batches = await asyncio.gather(*(store.take(Q, 2) for _ in range(20)))
        jobs = [job for batch in batches for job in batch]
        assert {job.id for job in jobs} == ids
        assert sorted(len(batch) for batch in batches) == [0] * 6 + [1] + [2] * 13
        outcomes = [*(Done(job.lease) for job in jobs), *(Done(job.lease) for job in jobs)]
        refused = await asyncio.gather(*(store.settle([outcome]) for outcome in outcomes))
        assert [[each.lease for each in answer] for answer in refused[: len(jobs)]] == [[]] * len(jobs)
        assert [[each.lease for each in answer] for answer in refused[len(jobs) :]] == [[job.lease] for job in jobs]
