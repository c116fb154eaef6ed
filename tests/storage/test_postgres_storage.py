"""What only PostgreSQL has: schemas, migrations, callers' transactions, counters in slots, plans that must last."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from accoda import open_storage
from accoda.clock import SystemClock
from accoda.errors import InvalidInput, NotADatabase, SchemaMismatch, StorageReadOnly, StorageUnavailable
from accoda.model import STATES, Bury, Done, NewJob, Rank, Retry
from accoda.storage.postgres import PostgresStorage
from accoda.storage.postgres.client import queries_for
from accoda.storage.postgres.migrate import MIGRATIONS
from accoda.storage.postgres.open import place_of
from accoda.testing.servers.postgres import PostgresServer
from accoda.testing.servers.pytest import need

_numbers = itertools.count(1)

ROWS_READ = """
SELECT sum(i.idx_tup_read) + min(t.seq_tup_read) FROM pg_stat_all_indexes i JOIN pg_stat_all_tables t USING (relid)
WHERE i.schemaname = $1 AND i.relname = 'jobs'
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with need(lambda: PostgresServer(durable=False, settings=["synchronous_commit=off"])) as running:
        yield running


@pytest.fixture
def schema() -> str:
    return f"test_{next(_numbers)}"


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    return f"{server.url}?schema={schema}"


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[PostgresStorage]:
    async with await open_storage(url) as opened:
        assert isinstance(opened, PostgresStorage)
        yield opened


@pytest_asyncio.fixture
async def sql(server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.url)
    yield connection
    await connection.close()


async def ready(store: PostgresStorage, queue: str = "q") -> int:
    return (await store.stats()).queues[queue].ready if queue in (await store.stats()).queues else 0


class TestUrl:
    def test_options_of_ours_and_of_libpq_are_told_apart(self) -> None:
        place = place_of(
            urlsplit("postgresql://u:p%40w@h:5433/db?schema=jobs&sslmode=require&pool=3&application_name=x")
        )
        assert place.dsn == "postgresql://u:p%40w@h:5433/db?sslmode=require&application_name=x"
        assert (place.schema, place.pool) == ("jobs", 3)

    @pytest.mark.parametrize(
        "query", ["shema=x", "schema=", "schema=a-b", "schema=pg_x", "pool=0", "pool=x", "fsync=off"]
    )
    async def test_an_option_that_cannot_be_used_is_refused(self, query: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            await open_storage(f"postgresql://127.0.0.1/db?{query}")
        assert query.partition("=")[0] in str(caught.value)

    async def test_a_server_that_is_not_there_is_unavailable(self) -> None:
        with pytest.raises(StorageUnavailable, match="does not answer"):
            await open_storage("postgresql://127.0.0.1:1/db")

    async def test_a_database_that_is_not_there_is_unavailable(self, server: PostgresServer) -> None:
        with pytest.raises(StorageUnavailable, match="createdb"):
            await open_storage(server.url.removesuffix("accoda") + "nowhere")


class TestMigrations:
    async def test_many_newcomers_make_one_store(self, url: str) -> None:
        stores = await asyncio.gather(*(open_storage(url) for _ in range(8)))
        answers = [await store.enqueue([NewJob("q", key="k")]) for store in stores]
        assert sorted(answer.what for (answer,) in answers) == ["created"] + ["kept"] * 7
        await asyncio.gather(*(store.close() for store in stores))

    async def test_opening_again_changes_nothing(self, url: str) -> None:
        async with await open_storage(url) as store:
            ids = [answer.id for answer in await store.enqueue([NewJob("q")])]
        async with await open_storage(url) as store:
            assert [job.id for job in await store.take("q", 5)] == ids

    async def test_a_store_of_a_newer_version_is_refused(
        self, store: PostgresStorage, url: str, schema: str, sql: asyncpg.Connection
    ) -> None:
        await sql.execute(f"UPDATE {schema}.layout SET version = version + 1")
        with pytest.raises(SchemaMismatch, match=rf"layout {len(MIGRATIONS) + 1}.*up to {len(MIGRATIONS)}.*upgrade"):
            await open_storage(url)

    async def test_a_schema_of_another_program_is_left_alone(
        self, url: str, schema: str, sql: asyncpg.Connection
    ) -> None:
        await sql.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.jobs (theirs text)")
        with pytest.raises(NotADatabase, match="schema="):
            await open_storage(url)
        assert await sql.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = $1", schema) == 1

    async def test_a_schema_that_vanishes_is_told(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        await sql.execute(f"DROP SCHEMA {schema} CASCADE")
        with pytest.raises(SchemaMismatch):
            await store.stats()

    async def test_a_user_without_rights_is_told(
        self, server: PostgresServer, url: str, sql: asyncpg.Connection
    ) -> None:
        await sql.execute("CREATE ROLE guest LOGIN")
        with pytest.raises(StorageReadOnly, match="grant"):
            await open_storage(url.replace("accoda@", "guest@"))

    async def test_a_worker_needs_no_more_than_the_use_of_the_schema(
        self, store: PostgresStorage, url: str, schema: str, sql: asyncpg.Connection
    ) -> None:
        await sql.execute(f"CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA {schema} TO worker")
        async with await open_storage(url.replace("accoda@", "worker@")) as worker:
            await worker.enqueue([NewJob("q", key="k")])
            (job,) = await worker.take("q", 1)
            assert await worker.settle([Done(job.lease, then=[NewJob("q")])]) == []
            assert (await worker.stats()).queues["q"].done == 1

    async def test_two_schemas_are_two_stores(self, store: PostgresStorage, server: PostgresServer) -> None:
        async with await open_storage(f"{server.url}?schema=other_{next(_numbers)}") as other:
            await store.enqueue([NewJob("q")])
            assert await other.take("q", 1) == []


class TestCallersTransaction:
    async def test_asyncpg(self, store: PostgresStorage, sql: asyncpg.Connection) -> None:
        transaction = sql.transaction()
        await transaction.start()
        answers = await store.enqueue([NewJob("q", b"1"), NewJob("q", b"2", delay=60)], connection=sql)
        assert [answer.what for answer in answers] == ["created", "created"]
        assert await store.take("q", 5) == []
        await transaction.commit()
        assert [job.data for job in await store.take("q", 5)] == [b"1"]

    async def test_asyncpg_from_a_pool(self, store: PostgresStorage, server: PostgresServer) -> None:
        async with asyncpg.create_pool(server.url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
            with pytest.raises(ZeroDivisionError):
                async with connection.transaction():
                    await store.enqueue([NewJob("q")], connection=connection)
                    raise ZeroDivisionError
            assert await ready(store) == 0
            async with connection.transaction():
                await store.enqueue([NewJob("q")], connection=connection)
        assert await ready(store) == 1

    async def test_psycopg(self, store: PostgresStorage, server: PostgresServer) -> None:
        job = NewJob("q", b"\x00\xff", rank=1.5, cost=3, key="k", waiter=b"w", keep_for=2)
        async with await psycopg.AsyncConnection.connect(server.url) as connection:
            await store.enqueue([job], connection=connection)
            await connection.rollback()
            (answer,) = await store.enqueue([job, NewJob("q")][:1], connection=connection)
            assert await ready(store) == 0
            await connection.commit()
        (taken,) = await store.take("q", 5)
        assert (taken.id, taken.data, taken.rank, taken.cost, taken.key) == (answer.id, b"\x00\xff", 1.5, 3, "k")
        assert await store.waiters(taken.lease) == [b"w"]

    @pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
    async def test_sqlalchemy_connection(self, store: PostgresStorage, server: PostgresServer, driver: str) -> None:
        engine = create_async_engine(server.url.replace("postgresql", f"postgresql+{driver}"))
        async with engine.connect() as connection:
            await store.enqueue([NewJob("q", b"no")], connection=connection)
            await connection.rollback()
            await store.enqueue([NewJob("q", b"yes", key="k"), NewJob("q", b"too")], connection=connection)
            assert await ready(store) == 0
            await connection.commit()
        await engine.dispose()
        assert [job.data for job in await store.take("q", 5)] == [b"yes", b"too"]

    async def test_sqlalchemy_session(self, store: PostgresStorage, server: PostgresServer) -> None:
        engine = create_async_engine(server.url.replace("postgresql", "postgresql+asyncpg"))
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(text("SELECT 1"))
            await store.enqueue([NewJob("q", b"yes")], connection=session)
            assert await ready(store) == 0
        await engine.dispose()
        assert [job.data for job in await store.take("q", 5)] == [b"yes"]

    async def test_a_connection_of_another_kind_is_refused(
        self, store: PostgresStorage, server: PostgresServer
    ) -> None:
        with psycopg.connect(server.url) as blocking:
            for wrong in (object(), blocking):
                with pytest.raises(InvalidInput, match="connection"):
                    await store.enqueue([NewJob("q")], connection=wrong)

    async def test_the_commit_wakes_who_waits(self, store: PostgresStorage, sql: asyncpg.Connection) -> None:
        waiting = asyncio.create_task(store.wait(["q"], 30))
        async with sql.transaction():
            await store.enqueue([NewJob("q")], connection=sql)
            assert not waiting.done()
        assert await waiting

    async def test_one_that_stays_open_holds_up_nobody(self, store: PostgresStorage, sql: asyncpg.Connection) -> None:
        async with asyncio.timeout(10), sql.transaction():
            await store.enqueue([NewJob("q", b"mine")], connection=sql)
            await store.enqueue([NewJob("q", b"other", key="k")])
            (job,) = await store.take("q", 5)
            assert await store.settle([Done(job.lease)]) == []
            assert (await store.stats()).queues["q"].done == 1
        assert await ready(store) == 1

    async def test_a_job_that_it_holds_makes_no_worker_spin(
        self, store: PostgresStorage, sql: asyncpg.Connection
    ) -> None:
        await store.enqueue([NewJob("q", b"old", key="k")])
        replacing = NewJob("q", b"new", key="k", on_duplicate="replace")
        looks = 0

        async def work() -> bytes:
            nonlocal looks
            while not (jobs := await store.take("q", 1)):
                looks += 1
                assert await store.wait(["q"], 30)
            return jobs[0].data

        async with asyncio.timeout(20):
            async with sql.transaction():
                await store.enqueue([replacing], connection=sql)
                working = asyncio.create_task(work())
                await asyncio.sleep(0.3)
                assert not working.done()
            assert await working == b"new"
        assert looks < 20

    async def test_a_snapshot_of_long_ago_does_no_harm(self, store: PostgresStorage, sql: asyncpg.Connection) -> None:
        await store.enqueue([NewJob("q")])
        async with sql.transaction(isolation="repeatable_read"):
            await sql.fetchval("SELECT 1")
            await store.enqueue([NewJob("q")])
            await store.take("q", 1)
            await store.enqueue([NewJob("q"), NewJob("new")], connection=sql)
        stats = (await store.stats()).queues
        assert (stats["q"].ready, stats["q"].taken, stats["new"].ready) == (2, 1, 1)

    async def test_a_key_is_created_once_by_two_transactions(
        self, store: PostgresStorage, sql: asyncpg.Connection
    ) -> None:
        async with sql.transaction():
            (mine,) = await store.enqueue([NewJob("q", key="k")], connection=sql)
            other = asyncio.create_task(store.enqueue([NewJob("q", key="k", waiter=b"w", on_duplicate="attach")]))
            await asyncio.sleep(0.05)
            assert not other.done(), "it waits for the end of the first"
        ((answer,),) = await asyncio.gather(other)
        assert (answer.id, answer.what, answer.waiters) == (mine.id, "attached", 1)


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
        assert await ready(store) == 500

    async def test_a_dear_head_is_not_skipped_by_takers_that_come_at_once(self, store: PostgresStorage) -> None:
        await store.enqueue([NewJob("q", cost=5), *(NewJob("q", cost=1) for _ in range(20))])
        poor = [store.take("q", 5, max_cost=4) for _ in range(8)]
        assert await asyncio.gather(*poor) == [[]] * 8
        (rich, *_) = await store.take("q", 1, max_cost=5)
        assert rich.cost == 5


class TestNotifications:
    @pytest.fixture
    def looks(self, store: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[None]:
        """An entry for each look that has ended. All takes that find nothing count as two in a moment."""
        monkeypatch.setattr("accoda.storage.postgres.calls.VAIN_FOR", 600.0)
        ended: asyncio.Queue[None] = asyncio.Queue()
        fetch = store._client.fetch

        async def noting(query: str, *args: Any, repeat: bool) -> Any:
            answer = await fetch(query, *args, repeat=repeat)
            if query == "look":
                ended.put_nowait(None)
            return answer

        monkeypatch.setattr(store._client, "fetch", noting)
        return ended

    @pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
    async def test_a_job_that_was_locked_is_seen_though_nobody_tells_that_it_is_free(
        self,
        store: PostgresStorage,
        schema: str,
        sql: asyncpg.Connection,
        looks: asyncio.Queue[None],
        monkeypatch: pytest.MonkeyPatch,
        end: str,
    ) -> None:
        monkeypatch.setattr("accoda.storage.postgres.watch.LOOK_EVERY", 600_000)
        (answer,) = await store.enqueue([NewJob("q", b"x")])
        assert not await store.wait(["other"], 0)  # it listens now, so nothing else makes it look
        await looks.get()
        await sql.execute(f"BEGIN; SELECT FROM {schema}.jobs WHERE id = {answer.id} FOR UPDATE")  # as a rerank does
        assert await store.take("q", 1) == await store.take("q", 1) == []
        waiting = asyncio.create_task(store.wait(["q"], 600))
        async with asyncio.timeout(20):
            await looks.get()
            await sql.execute(end)
            assert await waiting
        assert [job.id for job in await store.take("q", 1)] == [answer.id]

    async def test_a_lock_that_stays_is_looked_at_less_and_less(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection, looks: asyncio.Queue[None]
    ) -> None:
        (answer,) = await store.enqueue([NewJob("q", b"x")])
        await sql.execute(f"BEGIN; SELECT FROM {schema}.jobs WHERE id = {answer.id} FOR UPDATE")
        assert await store.take("q", 1) == await store.take("q", 1) == []
        assert not await store.wait(["q"], 1)
        await sql.execute("ROLLBACK")
        assert 3 < looks.qsize() < 20  # it would be a hundred

    async def test_a_lost_one_delays_a_job_by_seconds_only(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accoda.storage.postgres.watch.LOOK_EVERY", 1000)
        waiting = asyncio.create_task(store.wait(["q"], 30))
        await store.stats()
        # As from a process that died between its commit and its notification.
        await sql.fetch(queries_for(schema)["enqueue"], None, ["q"], [b""], *([] for _ in range(9)))
        assert await waiting
        assert len(await store.take("q", 1)) == 1

    async def test_a_clock_that_is_wrong_by_an_hour_does_not_matter(self, store: PostgresStorage) -> None:
        class Wrong(SystemClock):
            def now(self) -> int:
                return super().now() + 3_600_000

            def call_at(self, moment, wake):  # type: ignore[no-untyped-def]
                return super().call_at(moment - 3_600_000, wake)

        store._timer = Wrong()
        await store.enqueue([NewJob("q", delay=0.2)])
        assert await store.take("q", 1) == []
        assert await store.wait(["q"], 10)
        (job,) = await store.take("q", 1, lease=0.2)
        assert await store.wait(["q"], 10)
        (again,) = await store.take("q", 1)
        assert (again.id, again.attempts) == (job.id, 1)


async def every_verb(store: PostgresStorage, n: int) -> None:
    key = f"every-{n}"
    answers = await store.enqueue(
        [
            NewJob("q", rank=-9),
            NewJob("q", key=key, rank=-9, waiter=b"w"),
            NewJob("q", key=key, waiter=b"w", on_duplicate="attach"),
            NewJob("q", key=key, rank=-9, on_duplicate="replace"),
            NewJob("q", delay=900),
            *(NewJob("q", rank=-8, keep_for=900) for _ in range(3)),
        ]
    )
    await store.rerank([Rank("q", answers[0].id, -10)])
    jobs = await store.take("q", 3) + await store.take("q", 2, max_cost=10)
    assert len(jobs) == 5
    await store.extend([job.lease for job in jobs], 50)
    await store.waiters(jobs[1].lease)
    await store.peek("q", after=0)
    await store.peek("q", key, after=1)
    (unwanted,) = await store.enqueue([NewJob("q", key=f"unwanted-{n}", waiter=b"w")])
    assert await store.drop("q", unwanted.id, 1)
    then = [NewJob("q", key=f"then-{n}")]
    await store.settle([Retry(jobs[0].lease, delay=5), Done(jobs[1].lease, then=then), Bury(jobs[2].lease, "x")])
    await store.settle([Done(job.lease) for job in jobs[3:]])
    await store.wait(["q"], 0)
    await store.stats()
    await store.find(jobs[0].id)
    for state in STATES:
        await store.browse("q", state, after=5, limit=3)
    await store.revive([jobs[2].id])
    assert await store.start_now([jobs[0].id]) == 1
    await store.remove([answers[4].id])


async def test_a_new_connection_asks_for_no_type(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's question costs the server more than a hundred jobs. It may be asked, but is not needed."""
    asked: list[object] = []
    ask = asyncpg.Connection._introspect_types

    async def note(self: Any, types: Any, timeout: Any) -> Any:
        asked.append(types)
        return await ask(self, types, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", note)
    async with await open_storage(url) as store:
        assert isinstance(store, PostgresStorage)
        await every_verb(store, 0)
        await store.place((await store.enqueue([NewJob("q")] * 9))[-1].id, 1)
    assert asked == []


class TestStartNow:
    async def test_lets_a_take_at_the_same_moment_have_what_is_ready(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        """It is named too, but it is not delayed, so it is not locked."""
        ready, delayed = await store.enqueue([NewJob("q"), NewJob("q", delay=900)])
        async with sql.transaction():
            started = await sql.fetchval(f"SELECT {schema}.start_now(NULL, $1)", [ready.id, delayed.id])
            assert started == ["q"]
            assert [job.id for job in await store.take("q", 5)] == [ready.id]
        assert [job.id for job in await store.take("q", 5)] == [delayed.id]

    async def test_waits_for_who_changes_the_job_and_sees_what_he_made_of_it(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        started, still = await store.enqueue([NewJob("q", delay=900), NewJob("q", delay=900)])
        async with sql.transaction():
            assert await sql.fetchval(f"SELECT {schema}.start_now(NULL, $1)", [started.id]) == ["q"]
            second = asyncio.create_task(store.start_now([still.id, started.id]))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            async with asyncio.timeout(10):
                while not await sql.fetchval(waiting):
                    await asyncio.sleep(0.005)
        assert await second == 1, "the other was started by somebody else meanwhile"
        stats = (await store.stats()).queues["q"]
        assert (stats.ready, stats.delayed) == (2, 0)


class TestPeek:
    async def test_locks_and_writes_nothing_where_nothing_is_due(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        await store.enqueue([NewJob("q", key="k", waiter=b"w"), NewJob("q", delay=900)])
        async with sql.transaction():
            for wanted in (None, "k"):
                assert await sql.fetchval(f"SELECT guests FROM {schema}.peek(NULL, 'q', $1, 0)", wanted) == [b"w"]
            # A transaction that has written a row, or locked one, has a number.
            assert await sql.fetchval("SELECT pg_current_xact_id_if_assigned()") is None

    async def test_is_no_obstacle_for_a_take_at_the_same_moment(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        first, _ = await store.enqueue([NewJob("q"), NewJob("q")])
        async with sql.transaction():
            await sql.fetch(f"SELECT * FROM {schema}.peek(NULL, 'q', NULL, NULL)")
            (job,) = await store.take("q", 1)
        assert job.id == first.id

    async def test_reads_only_the_rest_of_the_waiters(
        self, server: PostgresServer, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with await open_storage(f"{server.url}?schema={schema}&pool=1") as store:
            assert isinstance(store, PostgresStorage)
            store._client.queries["flush"] = "SELECT pg_stat_force_next_flush()"  # of PostgreSQL 15
            joins = [NewJob("q", key="k", waiter=b"%d" % n, on_duplicate="attach") for n in range(2000)]
            await store.enqueue(joins)

            async def rows_read() -> int:
                await store._client.fetch("flush", repeat=True)
                return int(await sql.fetchval(ROWS_READ.replace("'jobs'", "'waiters'"), schema))

            before = await rows_read()
            for key in (None, "k"):
                assert (await store.peek("q", key, after=1997)).waiters == (b"1997", b"1998", b"1999")
            assert 6 <= await rows_read() - before < 50


class TestPlans:
    async def test_those_made_for_a_small_table_fit_a_large_one(
        self, server: PostgresServer, schema: str, sql: asyncpg.Connection
    ) -> None:
        """A session plans once; a plan that reads the whole table would be the end of a queue that fills up."""

        async with await open_storage(f"{server.url}?schema={schema}&pool=1") as store:
            assert isinstance(store, PostgresStorage)
            client = store._client
            client.queries["flush"] = "SELECT pg_stat_force_next_flush()"  # of PostgreSQL 15

            async def rows_read() -> int:
                await client.fetch("flush", repeat=True)
                return int(await sql.fetchval(ROWS_READ, schema))

            for n in range(8):  # more than PostgreSQL tries before it keeps a plan
                await every_verb(store, n)
            await store.enqueue([NewJob("q", key=f"big-{n}", rank=n % 5, delay=900 * (n % 2)) for n in range(20_000)])
            before = await rows_read()
            await every_verb(store, 100)
            assert 50 < await rows_read() - before < 2_000
