"""The doctor at a real PostgreSQL server, badly configured on purpose."""

from collections.abc import Iterator, Sequence

import asyncpg  # type: ignore[import-untyped]
import pytest
from proof.servers.pgbouncer import PgBouncer
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need

from accoda import App, NewJob
from accoda.operations.doctor import Finding, examine
from accoda.operations.doctor.postgres import connections, durability


def one(findings: Sequence[Finding], what: str) -> Finding:
    found = [each for each in findings if each.what == what]
    assert len(found) == 1, findings
    return found[0]


@pytest.fixture(scope="module")
def bad() -> Iterator[PostgresServer]:
    settings = ("synchronous_commit=off", "autovacuum=off", "statement_timeout=900")
    with need(lambda: PostgresServer(durable=False, settings=settings, connections=12)) as server:
        yield server


async def test_a_bad_server_is_told_each_setting_and_left_as_it_is(bad: PostgresServer) -> None:
    found = await examine(bad.url)
    for what, level in (
        ("fsync", "problem"),
        ("full_page_writes", "problem"),
        ("synchronous_commit", "warning"),
        ("autovacuum", "warning"),
        ("statement_timeout", "warning"),
        ("connections", "warning"),
    ):
        assert one(found, what).level == level and one(found, what).advice, what
    assert "ALTER SYSTEM SET synchronous_commit = on" in one(found, "synchronous_commit").advice
    assert one(found, "layout").level == "problem" and "accoda migrate" in one(found, "layout").advice
    assert one(found, "clock").level == "ok"
    connection = await asyncpg.connect(bad.url)
    try:
        assert not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'accoda'")
    finally:
        await connection.close()


async def test_a_store_is_looked_into_and_an_old_one_is_not_upgraded(bad: PostgresServer) -> None:
    url = f"{bad.url}?pool=2&schema=looked"
    async with App(url) as app:
        await app.storage.enqueue([NewJob("emails")])
    found = await examine(url)
    assert one(found, "layout").level == "ok" and "'emails' has 1 ready job" in one(found, "queue").found
    assert one(found, "connections").level == "ok"
    connection = await asyncpg.connect(bad.url)
    try:
        await connection.execute("ALTER TABLE looked.jobs SET (autovacuum_enabled = false)")
        await connection.execute("UPDATE looked.layout SET version = 3")
        found = await examine(url)
        assert one(found, "layout").level == "problem"
        assert any(each.what == "autovacuum" and "jobs" in each.found for each in found)
        assert await connection.fetchval("SELECT version FROM looked.layout") == 3
    finally:
        await connection.close()


async def test_nobody_at_home_and_a_wrong_database_are_problems(bad: PostgresServer) -> None:
    assert one(await examine("postgresql://anna:secret@127.0.0.1:1/x"), "store").level == "problem"
    wrong = await examine(bad.url.rpartition("/")[0] + "/none")
    assert one(wrong, "store").level == "problem"


def test_good_settings_are_well() -> None:
    settings = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
    assert [each.level for each in durability(settings)] == ["ok"]
    weaker = durability(settings | {"synchronous_commit": "local", "synchronous_standby_names": "*"})
    assert [each.level for each in weaker] == ["note"]


async def test_a_pooler_is_a_problem_if_it_shares_sessions(bad: PostgresServer) -> None:
    with need(lambda: PgBouncer(bad, "pool_mode = transaction")) as bouncer:
        found = one(await examine(bouncer.url), "pooler")
        assert found.level == "problem" and "pool_mode = session" in found.advice
    with need(lambda: PgBouncer(bad)) as bouncer:
        assert one(await examine(bouncer.url), "pooler").level == "note"
    assert not [each for each in await examine(bad.url) if each.what == "pooler"]


def test_connections_are_counted_with_those_that_are_kept_for_others() -> None:
    settings = {"max_connections": "100", "superuser_reserved_connections": "3"}
    assert connections(settings, 50, 10).level == "ok"
    assert connections(settings, 90, 10).level == "warning"
