"""Through a real PgBouncer: in session mode everything works, other modes are refused when the store is opened."""

from collections.abc import Iterator

import asyncpg
import pytest
from proof.servers.pgbouncer import PgBouncer
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need

from accoda import open_storage
from accoda.errors import StorageError, StorageUnavailable
from accoda.model import NewJob
from accoda.storage.open import read_url
from accoda.storage.postgres.connection import SESSION, connect
from accoda.storage.postgres.errors import translate
from accoda.storage.postgres.open import place_of
from accoda.testing.conformance import (
    TestEnqueue,
    TestSettle,
    TestTake,
    TestWaitOfAnotherHandle,
    store,
)
from accoda.testing.store_fixture import ManualStoreFixture, StoreFixture

__all__ = ["TestEnqueue", "TestSettle", "TestTake", "TestWaitOfAnotherHandle", "store"]  # run here, in session mode

REFUSED = r"PgBouncer.*by transaction.*prepared statements.*LISTEN.*pool_mode = session.*URL"

LEFT_BEHIND = """
SELECT current_setting('enable_seqscan'), (SELECT count(*) FROM pg_prepared_statements WHERE name <> '')
"""


@pytest.fixture(scope="module")
def session(server: PostgresServer) -> Iterator[PgBouncer]:
    with need(lambda: PgBouncer(server)) as running:
        yield running


@pytest.fixture
def fixture(session: PgBouncer, schema: str) -> StoreFixture:
    """For the classes of the conformance suite."""
    url = f"{session.url}?schema={schema}&pool=4"
    return ManualStoreFixture(lambda clock: open_storage(url, clock=clock), url=url, shared=True)


async def test_the_settings_hold_though_pgbouncer_takes_none_at_the_start(session: PgBouncer) -> None:
    connection = await connect(place_of(read_url(session.url)), is_first=True)
    try:
        assert {name: await connection.fetchval(f"SHOW {name}") for name in SESSION} == SESSION
    finally:
        connection.terminate()


@pytest.mark.parametrize(
    "settings",
    [
        ["pool_mode = transaction"],
        ["pool_mode = transaction", "default_pool_size = 1"],
        ["pool_mode = transaction", "server_round_robin = 1", "min_pool_size = 2"],
        ["pool_mode = transaction", f"ignore_startup_parameters = {','.join(SESSION)}"],
        ["pool_mode = statement"],
    ],
    ids=lambda settings: ", ".join(settings).replace("pool_mode = ", ""),
)
async def test_shared_sessions_are_refused_and_left_as_they_are(server: PostgresServer, settings: list[str]) -> None:
    with need(lambda: PgBouncer(server, *settings)) as bouncer:
        for _ in range(3):
            with pytest.raises(StorageError, match=REFUSED):
                await open_storage(bouncer.url)
        other = await asyncpg.connect(bouncer.url, statement_cache_size=0)
        try:
            left = await other.fetchrow(LEFT_BEHIND)
        finally:
            other.terminate()
        assert tuple(left) == ("on", 0)


async def test_a_pool_of_one_connection_is_told(server: PostgresServer) -> None:
    with (
        need(lambda: PgBouncer(server, "default_pool_size = 1")) as bouncer,
        pytest.raises(StorageUnavailable, match="default_pool_size"),
    ):
        await open_storage(f"{bouncer.url}?connect_timeout=1")


async def test_a_parameter_that_pgbouncer_refuses_is_told(session: PgBouncer) -> None:
    with pytest.raises(StorageError, match="PgBouncer refuses a parameter of the URL"):
        await open_storage(f"{session.url}?options=-csynchronous_commit%3Doff")


async def test_a_prepared_statement_that_is_gone_means_that_sessions_are_shared(sql: asyncpg.Connection) -> None:
    """That is what a store sees whose pooler is changed while it is open."""
    await sql.fetchval("SELECT 1")
    await sql.execute("DEALLOCATE ALL")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await sql.fetchval("SELECT 1")
    with pytest.raises(StorageError, match=REFUSED):
        raise translate(caught.value)


async def test_a_caller_may_enqueue_in_a_transaction_of_any_pooler(server: PostgresServer, url: str) -> None:
    with need(lambda: PgBouncer(server, "pool_mode = transaction")) as bouncer:
        caller = await asyncpg.connect(bouncer.url, statement_cache_size=0)
        try:
            async with await open_storage(url) as direct:
                async with caller.transaction():
                    await direct.enqueue([NewJob("q", b"x", key="k")], connection=caller)
                    assert await direct.take("q", 1) == []
                assert [job.data for job in await direct.take("q", 1)] == [b"x"]
        finally:
            caller.terminate()
