"""Jobs that are enqueued in a caller's own transaction exist if and only if it commits."""

import asyncio

import asyncpg
import psycopg
import pytest
from proof.servers.postgres import PostgresServer
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from accoda.errors import InvalidInput
from accoda.model import REPORTS, ById, ByKey, Done, NewJob, Report
from accoda.storage.postgres import PostgresStorage


async def ready(store: PostgresStorage) -> int:
    queues = (await store.stats()).queues
    return queues["q"].ready if "q" in queues else 0


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
        assert (await store.look(ById(taken.id), waiters_after=0)).waiters == (b"w",)

    @pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
    async def test_a_job_that_reports(self, store: PostgresStorage, server: PostgresServer, driver: str) -> None:
        engine = create_async_engine(server.url.replace("postgresql", f"postgresql+{driver}"))
        async with engine.begin() as connection:
            await store.enqueue([NewJob("q", key="k", reports_to="flow é 1"), NewJob("q")], connection=connection)
        await engine.dispose()
        assert await store.settle([Done(job.lease) for job in await store.take("q", 5)]) == []
        (report,) = (await store.look(ByKey(REPORTS, "flow é 1"), waiters_after=0)).waiters
        assert Report.read(report).kind == "done"

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

    async def test_the_commit_wakes_waiting_workers(self, store: PostgresStorage, sql: asyncpg.Connection) -> None:
        waiting = asyncio.create_task(store.wait(["q"], 30))
        async with sql.transaction():
            await store.enqueue([NewJob("q")], connection=sql)
            assert not waiting.done()
        assert await waiting

    async def test_one_that_stays_open_holds_up_no_other_call(
        self, store: PostgresStorage, sql: asyncpg.Connection
    ) -> None:
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
