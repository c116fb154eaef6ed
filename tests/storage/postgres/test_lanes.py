"""Lanes on PostgreSQL: calls that balance one lane at once, jobs that others have locked, callers' own transactions."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random

import asyncpg
import pytest
import pytest_asyncio
from proof.servers.postgres import PostgresServer
from tests.storage.postgres.test_storage import rows_read

from accoda import open_storage
from accoda.model import (
    STATES,
    Bury,
    ById,
    Cancel,
    Done,
    Head,
    LaneInfo,
    Lanes,
    NewJob,
    OnDuplicate,
    Outcome,
    Remove,
    Rerank,
    Retry,
    Revive,
    StartNow,
)
from accoda.storage.postgres import PostgresStorage
from accoda.storage.postgres.client import call_of

OVER = """
SELECT lane, count(*) FROM {schema}.jobs WHERE lane IS NOT NULL AND state IN (0, 2) GROUP BY lane HAVING count(*) > $1
"""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest_asyncio.fixture
async def stores(server: PostgresServer, schema: str) -> AsyncIterator[list[PostgresStorage]]:
    """Four of the same schema, as of four processes."""
    opened = [await open_storage(f"{server.url}?schema={schema}&pool=6") for _ in range(4)]
    yield [store for store in opened if isinstance(store, PostgresStorage)]
    for store in opened:
        await store.close()


async def states(store: PostgresStorage, *ids: int) -> list[str]:
    jobs = [(await store.look(ById(id))).job for id in ids]
    return ["gone" if job is None else job.state for job in jobs]


async def add(store: PostgresStorage, *lanes: str) -> list[int]:
    return [answer.id for answer in await store.enqueue([NewJob("q", lane=lane) for lane in lanes])]


class TestLaneRaces:
    @pytest.mark.parametrize("keyed", [False, True])
    @pytest.mark.parametrize("limit", [1, 2])
    async def test_many_connections_never_lease_more_than_the_limit_and_finish_all(
        self,
        stores: list[PostgresStorage],
        schema: str,
        sql: asyncpg.Connection,
        monkeypatch: pytest.MonkeyPatch,
        limit: int,
        keyed: bool,
    ) -> None:
        """Jobs come, end, fail, are revived, cancelled, removed, reranked, replaced, and lose their leases."""
        if not keyed:  # calls with keys may close a circle, and one of them is repeated: see store_jobs in enqueue.sql
            monkeypatch.setattr("accoda.storage.postgres.client.UNDONE", ())  # a deadlock is an error here
        await stores[0].set_lanes("q", Lanes(limit=limit, fair=True))
        count, lanes, over = 60, "abc", OVER.format(schema=schema)
        busy = True

        async def enqueue(store: PostgresStorage, rng: Random) -> None:
            for n in range(count // 4):
                key = str(rng.randrange(6)) if keyed and n % 3 == 0 else None
                ways: list[OnDuplicate] = ["keep", "attach", "replace", "rerank"] if key else ["keep"]
                way = rng.choice(ways)
                await store.enqueue(
                    [
                        NewJob("q", lane=lane, rank=rng.randrange(3), key=key and lane + key, on_duplicate=way)
                        for lane in rng.sample(lanes, 3)
                    ]
                )

        async def work(store: PostgresStorage, rng: Random) -> None:
            while busy:
                taken = await store.take("q", 4, lease=rng.choice((60, 60, 60, 0.02)))
                outcomes: list[Outcome] = []
                for job in taken:
                    ends = (Done(job.lease), Done(job.lease), Retry(job.lease), Retry(job.lease, delay=0.01))
                    outcomes.append(rng.choice((*ends, Bury(job.lease, "x"))))
                rng.shuffle(outcomes)
                await store.settle(outcomes)
                if not taken:
                    await store.wait(["q"], 0.05)

        async def meddle(store: PostgresStorage, rng: Random) -> None:
            while busy:
                for state in STATES:
                    page = [job.id for job in await store.browse("q", state, limit=3)]
                    kinds = (Cancel, Remove, Revive) if rng.random() < 0.2 else (Revive,)
                    await store.change([rng.choice(kinds)(id) for id in page] + [Rerank(id, 1.5) for id in page])
                await store.stats()
                await asyncio.sleep(0.01)

        async def watch() -> None:
            while busy:
                assert await sql.fetch(over, limit) == []

        async def finish() -> None:
            nonlocal busy
            await asyncio.gather(*(enqueue(store, Random(n)) for n, store in enumerate(stores)))
            while True:
                stats = (await stores[0].stats()).queues["q"]
                if stats.total == stats.dead:
                    break
                await asyncio.sleep(0.02)
            busy = False

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for n, store in enumerate(stores):
                group.create_task(work(store, Random(10 + n)))
                group.create_task(work(store, Random(20 + n)))
            group.create_task(meddle(stores[0], Random(30)))
            group.create_task(watch())
            group.create_task(finish())
        # What was revived last may be left.
        found = dict(await sql.fetch(f"SELECT state, count(*) FROM {schema}.jobs GROUP BY state"))
        counts = await sql.fetchrow(
            f"SELECT sum(held), sum(ready), sum(delayed), sum(taken), sum(dead) FROM {schema}.counts"
        )
        assert tuple(counts) == tuple(found.get(state, 0) for state in (-1, 0, 1, 2, 3))
        while jobs := await stores[0].take("q", 9):
            await stores[0].settle([Done(job.lease) for job in jobs])
        assert (await stores[0].stats()).queues["q"].held == 0

    async def test_rules_that_come_while_jobs_come_hold_for_all_of_them(
        self, stores: list[PostgresStorage], schema: str, sql: asyncpg.Connection
    ) -> None:
        for limit in (2, None, 1, None, 3):

            async def enqueue(store: PostgresStorage) -> None:
                for _ in range(10):
                    await add(store, "a", "b")

            rules = None if limit is None else Lanes(limit=limit)
            await asyncio.gather(*map(enqueue, stores), stores[0].set_lanes("q", rules), *map(enqueue, stores))
            if limit is not None:
                assert await sql.fetch(OVER.format(schema=schema), limit) == []
            else:
                assert (await stores[0].stats()).queues["q"].held == 0

    async def test_takes_at_once_do_not_exceed_the_total(self, stores: list[PostgresStorage]) -> None:
        await stores[0].set_lanes("q", Lanes(total=3))
        await add(stores[0], *"abcdefghij")
        taken = await asyncio.gather(*(store.take("q", 2) for store in stores for _ in range(4)))
        assert sum(map(len, taken)) == 3

    @pytest.mark.parametrize("rules", [Lanes(limit=1), Lanes(total=1)])
    async def test_room_wakes_a_worker_of_another_process(self, stores: list[PostgresStorage], rules: Lanes) -> None:
        first, second, *_ = stores
        await first.set_lanes("q", rules)
        await add(first, "a", "a")
        (job,) = await first.take("q", 1)
        waiting = asyncio.create_task(second.wait(["q"], 30))
        await asyncio.sleep(0.2)  # it has looked, and will not look again for seconds
        assert not waiting.done()
        await first.settle([Done(job.lease)])
        async with asyncio.timeout(2):
            assert await waiting

    async def test_a_settle_waits_for_another_of_its_lane_and_fills_what_both_have_freed(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        await store.set_lanes("q", Lanes(limit=2))
        await add(store, *"aaaa")
        first, second = await store.take("q", 2)
        lease = first.lease
        async with asyncio.timeout(10), sql.transaction():
            token = [lease.id], [lease.attempts], [lease.taken_at], ["q"]
            await sql.fetch(call_of(schema, "settle", 10), None, *token, [], [], [], [], False)
            other = asyncio.create_task(store.settle([Done(second.lease)]))
            while not await sql.fetchval(WAITING):
                await asyncio.sleep(0.005)
        assert await other == []
        assert (await store.lanes("q")).lanes == (LaneInfo("a", 2, 0, 0),)


NEAR, FAR = "q.near", "q.far"
BOTH = (NEAR, FAR)


async def share(store: PostgresStorage, rules: Lanes) -> None:
    for queue in BOTH:
        await store.set_lanes(queue, rules)


async def enqueue_uncommitted(sql: asyncpg.Connection, schema: str, queue: str) -> None:
    """A job of the lane a, as an enqueue whose commit is yet to come."""
    job = (queue, b"", 0, None, None, 0, 0, None, 0, None, None, "a")
    await sql.fetch(f'SELECT * FROM "{schema}".enqueue(NULL, ARRAY[$1::"{schema}".new_job], false, $2)', job, [])


async def until_blocked(sql: asyncpg.Connection) -> None:
    while not await sql.fetchval(WAITING):
        await asyncio.sleep(0.005)


class TestSharedLimits:
    """Queues whose rules have the same `shared`."""

    async def test_many_connections_never_lease_more_than_the_limit_and_finish_all(
        self, stores: list[PostgresStorage], schema: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accoda.storage.postgres.client.UNDONE", ())  # a deadlock is an error here
        await share(stores[0], Lanes(limit=2, fair=True, shared="q"))
        over, done, count = OVER.format(schema=schema), 0, 240

        async def enqueue(store: PostgresStorage, rng: Random) -> None:
            for _ in range(count // len(stores) // 4):
                await store.enqueue([NewJob(rng.choice(BOTH), lane=lane, rank=rng.randrange(3)) for lane in "abca"])

        async def work(store: PostgresStorage, queue: str, rng: Random) -> None:
            nonlocal done
            while done < count:
                jobs = await store.take(queue, 4, lease=rng.choice((60, 60, 0.02)))
                refused = await store.settle([rng.choice((Done, Done, Retry))(job.lease) for job in jobs])
                done = count - sum(each.total for each in (await store.stats()).queues.values()) if enqueued else 0
                if not jobs:
                    await store.wait([queue], 0.05)
                assert len(refused) <= len(jobs)

        async def meddle() -> None:
            while done < count:
                for queue in BOTH:
                    page = await stores[0].browse(queue, "held", limit=3) + await stores[0].browse(
                        queue, "ready", limit=3
                    )
                    await stores[0].change([Rerank(job.id, 1.5) for job in page])
                await asyncio.sleep(0.01)

        async def watch() -> None:
            while done < count:
                assert await sql.fetch(over, 2) == []

        enqueued = False

        async def fill() -> None:
            nonlocal enqueued
            await asyncio.gather(*(enqueue(store, Random(n)) for n, store in enumerate(stores)))
            enqueued = True

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for n, store in enumerate(stores):
                for queue in BOTH:
                    group.create_task(work(store, queue, Random(n)))
            for task in (fill(), meddle(), watch()):
                group.create_task(task)

    async def test_rules_that_change_meanwhile_stop_no_one(
        self, stores: list[PostgresStorage], schema: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accoda.storage.postgres.client.UNDONE", ())
        shared = Lanes(limit=1, fair=True, shared="q")

        async def work(store: PostgresStorage, queue: str) -> None:
            for _ in range(10):
                await store.enqueue([NewJob(queue, lane=lane) for lane in "abba"])
                await store.settle([Done(job.lease) for job in await store.take(queue, 2)])

        async def change_rules(store: PostgresStorage, queue: str) -> None:
            for rules in (shared, None, Lanes(limit=2), Lanes(shared="other"), shared):
                await store.set_lanes(queue, rules)

        async with asyncio.timeout(60):
            await asyncio.gather(
                *(work(store, queue) for store in stores for queue in BOTH),
                *(change_rules(store, queue) for store, queue in zip(stores, BOTH, strict=False)),
            )
        assert await sql.fetch(OVER.format(schema=schema), 1) == []
        while jobs := [job for queue in BOTH for job in await stores[0].take(queue, 9)]:
            await stores[0].settle([Done(job.lease) for job in jobs])
        assert sum(each.total for each in (await stores[0].stats()).queues.values()) == 0

    async def test_a_lane_has_one_lock_in_all_of_them(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        await share(store, Lanes(limit=1, shared="q"))
        async with asyncio.timeout(10), sql.transaction():
            await enqueue_uncommitted(sql, schema, NEAR)
            other = asyncio.create_task(store.enqueue([NewJob(FAR, lane="a")]))
            await until_blocked(sql)
        await other
        assert (await store.lanes(NEAR)).lanes == (LaneInfo("a", 1, 0, 0),)
        assert (await store.lanes(FAR)).lanes == (LaneInfo("a", 0, 1, 0),)

    async def test_a_queue_that_joins_waits_for_those_who_balance(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        """Its lanes have other locks then, so it would not see the job that has come in by the old rules."""
        await store.set_lanes(NEAR, Lanes(limit=1))
        await store.set_lanes(FAR, Lanes(limit=1, shared="q"))
        await store.enqueue([NewJob(FAR, lane="a")])
        async with asyncio.timeout(10), sql.transaction():
            await enqueue_uncommitted(sql, schema, NEAR)
            joining = asyncio.create_task(store.set_lanes(NEAR, Lanes(limit=1, shared="q")))
            await until_blocked(sql)
        await joining
        assert (await store.lanes(NEAR)).lanes == (LaneInfo("a", 0, 1, 0),)
        assert (await store.lanes(FAR)).lanes == (LaneInfo("a", 1, 0, 0),)

    async def test_a_job_that_is_let_in_wakes_a_worker_of_its_queue_in_another_process(
        self, stores: list[PostgresStorage]
    ) -> None:
        first, second, *_ = stores
        await share(first, Lanes(limit=1, shared="q"))
        await first.enqueue([NewJob(NEAR, lane="a", key="k"), NewJob(FAR, lane="a")])
        for frees in (
            lambda: first.enqueue([NewJob(NEAR, key="k", on_duplicate="replace", delay=900)]),
            lambda: first.change([Remove(1)]),
        ):
            waiting = asyncio.create_task(second.wait([FAR], 30))
            await asyncio.sleep(0.2)  # it has looked, and will not look again for seconds
            assert not waiting.done()
            await frees()
            async with asyncio.timeout(2):
                assert await waiting
            (job,) = await second.take(FAR, 9)
            await second.settle([Retry(job.lease, rank=1)])
            await first.change([StartNow(1)])

    async def test_a_callers_transaction_that_frees_a_place_wakes_the_others(
        self, store: PostgresStorage, sql: asyncpg.Connection
    ) -> None:
        await share(store, Lanes(limit=1, shared="q"))
        await store.enqueue([NewJob(NEAR, lane="a", key="k"), NewJob(FAR, lane="a")])
        waiting = asyncio.create_task(store.wait([FAR], 30))
        await asyncio.sleep(0.2)
        async with sql.transaction():
            later = NewJob(NEAR, key="k", on_duplicate="replace", delay=900)
            await store.enqueue([later], connection=sql)
        async with asyncio.timeout(2):
            assert await waiting
        assert len(await store.take(FAR, 9)) == 1

    async def test_a_job_that_is_locked_in_one_of_them_keeps_its_place(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        await share(store, Lanes(limit=1, shared="q"))
        (ready,) = await store.enqueue([NewJob(NEAR, lane="a")])
        async with asyncio.timeout(10), sql.transaction():
            await sql.execute(f"SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE", ready.id)
            (better,) = await store.enqueue([NewJob(FAR, lane="a", rank=-1)])
            assert await states(store, ready.id, better.id) == ["ready", "held"]
        assert await states(store, better.id, ready.id) == ["ready", "held"]


class TestLongLanes:
    """Rules that let very many jobs of a lane in."""

    @pytest.mark.parametrize("queues", [["q"], [NEAR, FAR]])
    async def test_one_step_lets_in_a_part_of_them_and_set_lanes_goes_on(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection, queues: list[str]
    ) -> None:
        shared = "q" if len(queues) > 1 else None
        for queue in queues:
            await store.set_lanes(queue, Lanes(limit=1, fair=True, shared=shared))
        ids = [
            each.id for each in await store.enqueue([NewJob(queues[n % len(queues)], lane="a") for n in range(3500)])
        ]

        async def ready() -> int:
            return int(await sql.fetchval(f"SELECT count(*) FROM {schema}.jobs WHERE state = 0"))

        for queue in queues:
            rules = json.dumps({"limits": {}, "fair": True, "weights": {}, "by_cost": False, "shared": shared})
            await sql.fetch(call_of(schema, "set_lanes", 2), queue, rules)
        counted = [await ready()]
        while counted[-1] < len(ids):  # as one who calls after a crash of who changed the rules
            await store.take(queues[-1], 0)
            counted.append(await ready())
        steps = [after - before for before, after in pairwise(counted)]
        assert max(steps) <= 1100 and len(steps) >= 4
        for queue in queues:
            await store.set_lanes(queue, Lanes(limit=2, shared=shared))
        assert await ready() == 2
        for queue in queues:
            await store.set_lanes(queue, Lanes(limit=3000, shared=shared))
        assert await ready() == 3000
        best = [job.id for queue in queues for job in await store.take(queue, 3000)]
        assert sorted(best) == ids[:3000]

    async def test_a_step_that_touches_more_jobs_itself_lets_all_of_them_in(self, store: PostgresStorage) -> None:
        await store.set_lanes("q", Lanes(limit=2000, fair=True))
        key = NewJob("q", lane="a", key="k")
        await store.enqueue(
            [key, *(NewJob("q", lane="a") for _ in range(2499)), *(NewJob("q", lane="a") for _ in range(2499))]
        )
        assert (await store.stats()).queues["q"].ready == 2000
        jobs = await store.take("q", 2000)
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert (await store.stats()).queues["q"].ready == 2000


class TestLockedJobs:
    """Balancing passes over them, and whoever calls next makes up for it."""

    async def test_a_held_job_that_was_locked_comes_in_later(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        await store.set_lanes("q", Lanes(limit=1))
        first, held = await add(store, "a", "a")
        (job,) = await store.take("q", 1)
        async with asyncio.timeout(10), sql.transaction():
            await sql.execute(f"SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE", held)
            assert await store.settle([Done(job.lease)]) == []
            assert await store.take("q", 1) == []
            assert await states(store, held) == ["held"]
        assert [job.id for job in await store.take("q", 1)] == [held]
        assert await states(store, first) == ["gone"]

    async def test_a_ready_job_that_is_locked_keeps_its_place(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        await store.set_lanes("q", Lanes(limit=1))
        (ready,) = await add(store, "a")
        async with asyncio.timeout(10), sql.transaction():
            await sql.execute(f"SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE", ready)
            (better,) = await store.enqueue([NewJob("q", lane="a", rank=-1)])
            assert await states(store, ready, better.id) == ["ready", "held"]
            await add(store, "b")
            assert [job.lane for job in await store.take("q", 5)] == ["b"]
        assert await states(store, ready, better.id) == ["held", "ready"]

    async def test_no_worker_spins_for_a_locked_job(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        await store.set_lanes("q", Lanes(limit=1))
        _, held = await add(store, "a", "a")
        (job,) = await store.take("q", 1)
        looks = 0

        async def work() -> int:
            nonlocal looks
            while not (jobs := await store.take("q", 1)):
                looks += 1
                assert await store.wait(["q"], 30)
            return jobs[0].id

        async with asyncio.timeout(20):
            async with sql.transaction():
                await sql.execute(f"SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE", held)
                await store.settle([Done(job.lease)])
                working = asyncio.create_task(work())
                await asyncio.sleep(0.3)
                assert not working.done()
            assert await working == held
        assert looks < 20


class TestCallersTransaction:
    async def test_holds_up_no_other_call_of_its_lane(self, store: PostgresStorage, sql: asyncpg.Connection) -> None:
        await store.set_lanes("q", Lanes(limit=1, fair=True))
        async with asyncio.timeout(10), sql.transaction():
            mine = await store.enqueue([NewJob("q", lane="a", rank=-1), NewJob("q", lane="a")], connection=sql)
            assert [answer.what for answer in mine] == ["created", "created"]
            (other,) = await add(store, "a")
            jobs = await store.take("q", 5)
            assert [job.id for job in jobs] == [other]
        assert await states(store, *(answer.id for answer in mine)) == ["held", "held"]
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert await states(store, *(answer.id for answer in mine)) == ["ready", "held"]

    @pytest.mark.parametrize("rules", [None, Lanes(limit=2)])
    async def test_the_commit_wakes_a_worker_that_finds_the_job(
        self, store: PostgresStorage, sql: asyncpg.Connection, rules: Lanes | None
    ) -> None:
        await store.set_lanes("q", rules)
        waiting = asyncio.create_task(store.wait(["q"], 30))
        async with asyncio.timeout(10):
            async with sql.transaction():
                await store.enqueue([NewJob("q", lane="a") for _ in range(3)], connection=sql)
                assert not waiting.done()
            assert await waiting
        stats = (await store.stats()).queues["q"]
        assert (stats.ready, stats.held, stats.delayed) == ((3, 0, 0) if rules is None else (2, 1, 0))
        assert len(await store.take("q", 5)) == (3 if rules is None else 2)

    async def test_a_rollback_leaves_nothing(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        await store.set_lanes("q", Lanes(limit=1))
        transaction = sql.transaction()
        await transaction.start()
        await store.enqueue([NewJob("q", lane="a")], connection=sql)
        await transaction.rollback()
        assert (await store.stats()).queues.get("q") is None
        assert await sql.fetchval(f"SELECT count(*) FROM {schema}.unbalanced") == 0

    @pytest.mark.parametrize("commits", [True, False])
    async def test_a_held_job_that_it_replaces_is_not_forgotten(
        self, store: PostgresStorage, sql: asyncpg.Connection, commits: bool
    ) -> None:
        await store.set_lanes("q", Lanes(limit=1))
        await add(store, "a")
        (job,) = await store.take("q", 1)
        (held,) = await store.enqueue([NewJob("q", b"old", lane="a", key="k")])
        transaction = sql.transaction()
        await transaction.start()
        await store.enqueue([NewJob("q", b"new", key="k", on_duplicate="replace")], connection=sql)
        assert await store.settle([Done(job.lease)]) == []
        assert await store.take("q", 1) == []
        await (transaction.commit() if commits else transaction.rollback())
        (job,) = await store.take("q", 1)
        assert (job.id, job.data) == (held.id, b"new" if commits else b"old")

    @pytest.mark.parametrize("taken", [True, False])
    async def test_a_job_that_it_puts_off_gives_its_place_away(
        self, store: PostgresStorage, sql: asyncpg.Connection, taken: bool
    ) -> None:
        await store.set_lanes("q", Lanes(limit=1))
        await store.enqueue([NewJob("q", lane="a", key="k")])
        (held,) = await add(store, "a")
        if taken:
            assert len(await store.take("q", 1)) == 1
        async with sql.transaction():
            later = NewJob("q", key="k", on_duplicate="replace", delay=60)
            await store.enqueue([later], connection=sql)
        assert [job.id for job in await store.take("q", 5)] == [held]

    async def test_a_new_rank_may_change_who_is_held(self, store: PostgresStorage, sql: asyncpg.Connection) -> None:
        await store.set_lanes("q", Lanes(limit=1))
        (first,) = await store.enqueue([NewJob("q", lane="a", key="k")])
        (second,) = await add(store, "a")
        async with sql.transaction():
            await store.enqueue([NewJob("q", key="k", rank=5, on_duplicate="rerank")], connection=sql)
        assert await states(store, first.id, second) == ["held", "ready"]

    async def test_a_snapshot_of_before_the_rules_does_no_harm(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with sql.transaction(isolation="repeatable_read"):
            await sql.fetchval("SELECT 1")
            await store.set_lanes("q", Lanes(limit=1))
            await store.enqueue([NewJob("q", lane="a") for _ in range(3)], connection=sql)
        assert len(await store.take("q", 5)) == 1


async def every_verb(store: PostgresStorage, n: int) -> None:
    """On few lanes of the queue q."""
    lanes = [f"lane-{n}-{m}" for m in range(3)]
    answers = await store.enqueue(
        [
            *(NewJob("q", lane=lane, rank=-9) for lane in lanes for _ in range(4)),
            NewJob("q", lane=lanes[0], key=f"key-{n}", rank=-9.5),
            NewJob("q", lane=lanes[0], key=f"key-{n}", rank=-9, on_duplicate="replace"),
            NewJob("q", lane=lanes[0], delay=900),
            NewJob("q", lane="held"),
            NewJob("q", lane="held", rank=-n),  # better than those in the line
        ]
    )
    jobs = await store.take("q", 6)
    assert Counter(job.lane for job in jobs) == dict.fromkeys(lanes, 2)
    done: list[Outcome] = [
        Done(jobs[0].lease, [NewJob("q", lane=lanes[1])]),
        Retry(jobs[1].lease),
        Bury(jobs[2].lease, "x"),
    ]
    assert await store.settle(done) == []
    assert await store.settle([Done(job.lease) for job in jobs[3:]]) == []
    await store.change(
        [Rerank(answers[3].id, -9.5), Revive(jobs[2].id), StartNow(answers[14].id), Cancel(answers[7].id)]
    )
    assert (await store.look(Head("q"), ahead=True)).job is not None
    await store.wait(["q"], 0)
    await store.stats()
    while jobs := [job for job in await store.take("q", 9) if job.lane in lanes]:
        assert await store.settle([Done(job.lease) for job in jobs]) == []


class TestPlans:
    async def test_those_made_for_a_small_table_fit_one_with_many_lanes_and_long_ones(
        self, server: PostgresServer, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with await open_storage(f"{server.url}?schema={schema}&pool=1") as store:
            assert isinstance(store, PostgresStorage)
            await store.set_lanes("q", Lanes(limit=2, limits={"long": None}, fair=True, total=1000))
            for n in range(8):  # more than PostgreSQL tries before it keeps a plan
                await every_verb(store, n)
            await store.enqueue([NewJob("q", lane=f"{n % 3000}") for n in range(9_000)])
            await store.enqueue([NewJob("q", lane="long") for _ in range(6_000)])
            await store.enqueue([NewJob("q", lane="held") for _ in range(6_000)])
            await store.enqueue([NewJob("q") for _ in range(5_000)])
            await store.enqueue([NewJob("p", lane="lane-100-1") for _ in range(5_000)])
            before = await rows_read(store, sql)
            await every_verb(store, 100)
            assert 50 < await rows_read(store, sql) - before < 1_000
