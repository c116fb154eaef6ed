"""What only PostgreSQL has: callers that wait for each other's locks, counters in slots, plans that must last."""

import asyncio

import asyncpg
import pytest
from proof.servers.postgres import PostgresServer

from accoda import open_storage
from accoda.model import (
    REPORTS,
    STATES,
    Bury,
    ById,
    ByKey,
    Cancel,
    Cursor,
    Done,
    Head,
    Lease,
    NewJob,
    Remove,
    Report,
    Rerank,
    Retry,
    Revive,
    StartNow,
)
from accoda.storage.postgres import PostgresStorage
from accoda.storage.postgres.client import call_of

ROWS_READ = """
SELECT sum(i.idx_tup_read) + min(t.seq_tup_read) FROM pg_stat_all_indexes i JOIN pg_stat_all_tables t USING (relid)
WHERE i.schemaname = $1 AND i.relname = $2
"""


async def rows_read(store: PostgresStorage, sql: asyncpg.Connection, table: str = "jobs") -> int:
    """By the store's only connection, so far."""
    store._client._calls["flush"] = "SELECT pg_stat_force_next_flush()"  # of PostgreSQL 15
    await store._client.fetch("flush", repeat=True)
    return int(await sql.fetchval(ROWS_READ, store._client.place.schema, table))


class TestConcurrency:
    async def test_keys_in_any_order_make_no_deadlock(self, store: PostgresStorage) -> None:
        keys = [str(n) for n in range(12)]

        async def attach(n: int) -> None:
            turned = keys[n:] + keys[:n]
            await store.enqueue([NewJob("q", key=key, waiter=b"w", on_duplicate="attach") for key in turned])

        async def run(_: int) -> None:
            jobs = await store.take("q", 6)
            then = [NewJob("q", key=key, waiter=b"t", on_duplicate="attach") for key in reversed(keys)]
            await store.settle([Done(job.lease, then=then if n == 0 else ()) for n, job in enumerate(reversed(jobs))])

        for _ in range(5):
            await asyncio.gather(*(each(n) for n in range(12) for each in (attach, run)))
        stats = (await store.stats()).queues["q"]
        assert stats.total == stats.ready + stats.taken == len(await store.browse("q", "ready")) + stats.taken

    async def test_counts_are_exact_after_many_writers(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        async def run(n: int) -> None:
            for _ in range(10):
                await store.enqueue([NewJob("q", delay=60 * (n % 2)), NewJob("q")])
                for job in await store.take("q", 3):
                    await store.settle([(Done(job.lease), Retry(job.lease), Bury(job.lease, "x"))[job.id % 3]])

        await asyncio.gather(*(run(n) for n in range(12)))
        for _ in range(20):
            async with sql.transaction():
                await store.enqueue([NewJob("q")], connection=sql)
        stats = (await store.stats()).queues["q"]
        rows = dict(await sql.fetch(f"SELECT state, count(*) FROM {schema}.jobs GROUP BY state"))
        assert (stats.ready, stats.delayed, stats.taken, stats.dead) == tuple(rows.get(n, 0) for n in range(4))
        assert stats.total + stats.done == 12 * 10 * 2 + 20

    async def test_slots_of_counters_are_folded(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        for _ in range(100):
            await store.enqueue([NewJob("q")], connection=sql)
        for _ in range(400):
            await store.enqueue([NewJob("q")])
        assert await sql.fetchval(f"SELECT count(*) FROM {schema}.counts") < 100
        assert (await store.stats()).queues["q"].ready == 500

    async def test_a_dear_head_is_not_skipped_by_takers_that_come_at_once(self, store: PostgresStorage) -> None:
        await store.enqueue([NewJob("q", cost=5), *(NewJob("q", cost=1) for _ in range(20))])
        poor = [store.take("q", 5, max_cost=4) for _ in range(8)]
        assert await asyncio.gather(*poor) == [[]] * 8
        (rich, *_) = await store.take("q", 1, max_cost=5)
        assert rich.cost == 5


def note(flow: str) -> NewJob:
    return NewJob(REPORTS, key=flow, waiter=b"note", on_duplicate="attach")


async def reports(store: PostgresStorage, flow: str) -> list[int]:
    """The ids of the jobs that were reported, in order."""
    waiters = (await store.look(ByKey(REPORTS, flow), waiters_after=0)).waiters
    return [Report.read(waiter).id for waiter in waiters if waiter != b"note"]


class TestReports:
    async def test_come_in_the_order_of_the_outcomes_not_of_the_ids(self, store: PostgresStorage) -> None:
        await store.enqueue([NewJob("q", key=str(n), reports_to="flow", keep_for=n % 2) for n in range(6)])
        leases = [job.lease for job in await store.take("q", 6)]
        turned = [leases[n] for n in (3, 0, 5, 1, 4, 2)]
        again = turned[1]  # refused: its job has ended by then
        assert len(await store.settle([*(Done(lease) for lease in turned[:5]), Done(again), Bury(turned[5], "x")])) == 1
        assert await reports(store, "flow") == [lease.id for lease in turned]

    async def test_of_two_transactions_are_both_stored(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        """The second waits for the first, whether the flow is there or is made."""
        await store.enqueue([NewJob("q", key=str(n), reports_to="flow") for n in range(4)])
        ids = [job.id for job in await store.take("q", 4)]
        for first, second in (ids[:2], ids[2:]):
            async with asyncio.timeout(20):
                async with sql.transaction():
                    assert await sql.fetchval(call_of(schema, "change", 2), None, [(5, first, None, None, None)]) == 1
                    other = asyncio.create_task(store.change([Cancel(second)]))
                    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    while not await sql.fetchval(waiting):
                        await asyncio.sleep(0.005)
                assert await other == 1
        assert await reports(store, "flow") == ids

    async def test_of_many_members_to_many_flows_make_no_deadlock(
        self, server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Flows have lower and higher ids than their members, report themselves, leave notes, and are extended."""
        monkeypatch.setattr("accoda.storage.postgres.client.UNDONE", ())  # a deadlock is an error here
        flows = [str(n) for n in range(6)]
        async with await open_storage(f"{server.url}?schema={schema}&pool=16") as store:
            assert isinstance(store, PostgresStorage)

            async def end(lease: Lease, n: int) -> None:
                ends = (Done(lease), Done(lease, result=b"r"), Bury(lease, "x"), Done(lease, [note(flows[n % 6])]))
                if n % 5 == 4:
                    await store.change([Cancel(lease.id)])
                else:
                    await store.settle([ends[n % 5]])

            for round in range(6):
                nested = [
                    NewJob(REPORTS, key=flow, reports_to=flows[n - 1] if n else None) for n, flow in enumerate(flows)
                ]
                members = [NewJob("q", key=f"{round} {n}", reports_to=flows[n % 6]) for n in range(48)]
                await store.enqueue(members[:24] + nested[::-1] + members[24:])
                leases = [job.lease for job in await store.take("q", 48, lease=600)]
                held = [job.lease for job in await store.take(REPORTS, 6, lease=600)]
                mixed = sorted(leases + held, key=lambda lease: lease.id)
                await asyncio.gather(
                    *(end(lease, n) for n, lease in enumerate(leases)),
                    *(store.extend(mixed, 600) for _ in range(6)),
                    *(store.settle([Retry(lease, then=[note(flow) for flow in flows])]) for lease in held[:3]),
                    *(store.settle([Done(lease)]) for lease in held[3:]),
                    *(store.settle([Done(lease) for lease in reversed(mixed)]) for _ in range(2)),
                )
                await store.purge(REPORTS, "ready")


class TestChange:
    async def test_lets_a_take_at_the_same_moment_have_what_it_is_not_for(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        """To start a job that is ready means nothing, so that job is not locked."""
        ready, delayed = await store.enqueue([NewJob("q"), NewJob("q", delay=900)])
        changes = [(2, id, None, None, None) for id in (ready.id, delayed.id)]
        async with sql.transaction():
            assert await sql.fetchval(call_of(schema, "change", 2), None, changes) == 1
            assert [job.id for job in await store.take("q", 5)] == [ready.id]
        assert [job.id for job in await store.take("q", 5)] == [delayed.id]

    async def test_waits_for_another_change_of_the_job_and_sees_what_that_made_of_it(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        started, still = await store.enqueue([NewJob("q", delay=900), NewJob("q", delay=900)])
        async with sql.transaction():
            assert await sql.fetchval(call_of(schema, "change", 2), None, [(2, started.id, None, None, None)]) == 1
            second = asyncio.create_task(store.change([StartNow(still.id), StartNow(started.id)]))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            async with asyncio.timeout(10):
                while not await sql.fetchval(waiting):
                    await asyncio.sleep(0.005)
        assert await second == 1, "the other job was started meanwhile"
        stats = (await store.stats()).queues["q"]
        assert (stats.ready, stats.delayed) == (2, 0)


class TestLook:
    async def test_locks_and_writes_nothing_where_nothing_is_due(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        (new, _) = await store.enqueue([NewJob("q", key="k", waiter=b"w"), NewJob("q", delay=900)])
        async with sql.transaction():
            for target in ((new.id, None, None), (None, "q", None), (None, "q", "k")):
                row = await sql.fetchrow(call_of(schema, "look", 6), None, *target, 0, True)
                assert row["joined"] == [b"w"]
            # A transaction that has written a row, or locked one, has a number.
            assert await sql.fetchval("SELECT pg_current_xact_id_if_assigned()") is None

    async def test_reads_only_the_rest_of_the_waiters(
        self, server: PostgresServer, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with await open_storage(f"{server.url}?schema={schema}&pool=1") as store:
            assert isinstance(store, PostgresStorage)
            await store.enqueue([NewJob("q", key="k", waiter=b"%d" % n, on_duplicate="attach") for n in range(2000)])
            before = await rows_read(store, sql, "waiters")
            for target in (Head("q"), ByKey("q", "k")):
                assert (await store.look(target, waiters_after=1997)).waiters == (b"1997", b"1998", b"1999")
            assert 6 <= await rows_read(store, sql, "waiters") - before < 50

    async def test_counts_the_jobs_before_it_only_where_that_is_asked_for(
        self, server: PostgresServer, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with await open_storage(f"{server.url}?schema={schema}&pool=1") as store:
            assert isinstance(store, PostgresStorage)
            last = (await store.enqueue([NewJob("q") for _ in range(2000)]))[-1].id
            before = await rows_read(store, sql)
            assert (await store.look(ById(last))).ahead is None
            assert await rows_read(store, sql) - before < 50
            assert (await store.look(ById(last), ahead=True)).ahead == 1999


async def every_verb(store: PostgresStorage, n: int) -> None:
    key = f"every-{n}"
    answers = await store.enqueue(
        [
            NewJob("q", rank=-9),
            NewJob("q", key=key, rank=-9, waiter=b"w", reports_to=f"flow-{n}"),
            NewJob("q", key=key, waiter=b"w", on_duplicate="attach"),
            NewJob("q", key=key, rank=-9, on_duplicate="replace"),
            NewJob("q", rank=-7, delay=900),
            *(NewJob("q", rank=-8, keep_for=900) for _ in range(3)),
        ]
    )
    assert await store.change([Rerank(answers[0].id, -10.0)]) == 1
    jobs = await store.take("q", 3) + await store.take("q", 2, max_cost=10)
    assert len(jobs) == 5
    assert await store.extend([job.lease for job in jobs], 50) == []
    await store.look(Head("q"), waiters_after=0)
    for target in (ByKey("q", key), ById(jobs[1].id)):
        assert (await store.look(target, waiters_after=0)).job is not None
    assert (await store.look(ById(answers[4].id), ahead=True)).ahead is not None
    (unwanted,) = await store.enqueue([NewJob("q", key=f"unwanted-{n}", waiter=b"w")])
    assert await store.change([Remove(unwanted.id, waiters=1, queue="q")]) == 1
    then = [NewJob("q", key=f"then-{n}")]
    await store.settle([Retry(jobs[0].lease, delay=5), Done(jobs[1].lease, then=then), Bury(jobs[2].lease, "x")])
    await store.settle([Done(job.lease) for job in jobs[3:]])
    await store.wait(["q"], 0)
    await store.stats()
    for state in STATES:
        await store.browse("q", state, order="id", after=Cursor(0.0, 5), limit=3)
        await store.browse("q", state, after=Cursor(5.0, 5), limit=3)
    assert await store.change([Revive(jobs[2].id), StartNow(jobs[0].id), Remove(answers[4].id)]) == 3
    await store.purge("q", "dead", limit=3)
    await store.purge("q", "done", before=5, limit=3)


class TestBrowse:
    @pytest.mark.parametrize(("sort", "found"), [(-1e300, 0), (1e300, 1)])
    async def test_a_cursor_of_a_job_whose_rank_is_no_moment_fits_ended_jobs(
        self, store: PostgresStorage, sort: float, found: int
    ) -> None:
        (new,) = await store.enqueue([NewJob("q", keep_for=60)])
        await store.change([Cancel(new.id)])
        assert len(await store.browse("q", "cancelled", after=Cursor(sort, 1))) == found


class TestPlans:
    async def test_those_made_for_a_small_table_fit_a_large_one(
        self, server: PostgresServer, schema: str, sql: asyncpg.Connection
    ) -> None:
        """A session plans once; a plan that reads the whole table would be the end of a queue that fills up."""
        async with await open_storage(f"{server.url}?schema={schema}&pool=1") as store:
            assert isinstance(store, PostgresStorage)
            for n in range(8):  # more than PostgreSQL tries before it keeps a plan
                await every_verb(store, n)
            await store.enqueue([NewJob("q", key=f"big-{n}", rank=n % 5, delay=900 * (n % 2)) for n in range(20_000)])
            before = await rows_read(store, sql)
            await every_verb(store, 100)
            assert 50 < await rows_read(store, sql) - before < 2_000
