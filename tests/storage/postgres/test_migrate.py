"""The schema is made once, by whichever process comes first, and one of another kind is left alone."""

import asyncio
from importlib.resources import files

import asyncpg
import pytest

from accoda import open_storage
from accoda.errors import NotADatabase, SchemaMismatch
from accoda.model import NewJob
from accoda.storage.postgres import PostgresStorage
from accoda.storage.postgres.migrate import LAYOUT, SCRIPTS


async def test_many_newcomers_make_one_store(url: str) -> None:
    stores = await asyncio.gather(*(open_storage(url) for _ in range(8)))
    answers = [await store.enqueue([NewJob("q", key="k")]) for store in stores]
    assert sorted(answer.what for (answer,) in answers) == ["created"] + ["kept"] * 7
    await asyncio.gather(*(store.close() for store in stores))


async def test_opening_again_changes_nothing(url: str) -> None:
    async with await open_storage(url) as store:
        ids = [answer.id for answer in await store.enqueue([NewJob("q")])]
    async with await open_storage(url) as store:
        assert [job.id for job in await store.take("q", 5)] == ids


async def test_a_store_of_a_newer_version_is_refused(
    store: PostgresStorage, url: str, schema: str, sql: asyncpg.Connection
) -> None:
    await sql.execute(f"UPDATE {schema}.layout SET version = version + 1")
    with pytest.raises(SchemaMismatch, match=rf"layout {LAYOUT + 1}.*up to {LAYOUT}.*upgrade"):
        await open_storage(url)


async def test_a_schema_of_another_program_is_left_alone(url: str, schema: str, sql: asyncpg.Connection) -> None:
    await sql.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.jobs (theirs text)")
    with pytest.raises(NotADatabase, match="schema="):
        await open_storage(url)
    assert await sql.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = $1", schema) == 1


async def test_a_schema_that_vanishes_is_told(store: PostgresStorage, schema: str, sql: asyncpg.Connection) -> None:
    await sql.execute(f"DROP SCHEMA {schema} CASCADE")
    with pytest.raises(SchemaMismatch):
        await store.stats()


def test_every_script_is_run() -> None:
    folder = files("accoda.storage.postgres") / "verbs"
    assert {f"verbs/{entry.name}" for entry in folder.iterdir()} | {"schema.sql"} == set(SCRIPTS)
