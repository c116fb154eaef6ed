"""URLs, and the rights that a role needs."""

from urllib.parse import urlsplit

import asyncpg
import pytest
from proof.servers.postgres import PostgresServer

from accoda import open_storage
from accoda.errors import InvalidInput, StorageReadOnly, StorageUnavailable
from accoda.model import Done, NewJob
from accoda.storage.postgres import PostgresStorage
from accoda.storage.postgres.open import place_of
from accoda.storage.protocol import VERBS


class TestUrl:
    def test_options_of_ours_and_of_libpq_are_told_apart(self) -> None:
        place = place_of(
            urlsplit("postgresql://u:p%40w@h:5433/db?schema=jobs&sslmode=require&pool=3&application_name=x")
        )
        assert place.dsn == "postgresql://u:p%40w@h:5433/db?sslmode=require&application_name=x"
        assert (place.schema, place.pool) == ("jobs", 3)

    async def test_the_short_name_of_the_scheme_works_too(self, url: str) -> None:
        async with await open_storage(url.replace("postgresql://", "postgres://", 1)) as store:
            assert await store.enqueue([NewJob("emails")])

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


class TestRights:
    async def test_a_user_without_rights_is_told(self, url: str, sql: asyncpg.Connection) -> None:
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

    async def test_every_verb_has_the_rights_of_the_owner_and_a_fixed_search_path(
        self, store: PostgresStorage, schema: str, sql: asyncpg.Connection
    ) -> None:
        found = await sql.fetch(
            "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = $1::regnamespace AND prosecdef", schema
        )
        settings = {row["proname"]: row["proconfig"] for row in found}
        assert {*VERBS, "catch_up", "enqueue_apart", "give_back", "notify"} - {"close"} == set(settings)
        assert all(f"search_path={schema}, pg_temp" in config for config in settings.values())

    async def test_two_schemas_are_two_stores(self, store: PostgresStorage, server: PostgresServer) -> None:
        async with await open_storage(f"{server.url}?schema=another") as other:
            await store.enqueue([NewJob("q")])
            assert await other.take("q", 1) == []
