"""A store that an older version made is brought up to date with its jobs in it, while others work on."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
import pytest_asyncio

from accoda import Store, open_storage
from accoda.model import STATES, Bury, Done, Lease, NewJob, Retry
from accoda.storage.postgres.client import queries_for
from accoda.storage.postgres.migrate import MIGRATIONS, migrate
from accoda.storage.postgres.open import SESSION
from accoda.testing.servers.postgres import PostgresServer
from accoda.testing.servers.pytest import need

_numbers = itertools.count(1)


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
async def sql(server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.url)
    yield connection
    await connection.close()


# What the version before 0008_afresh sends for a take.
TAKE_BEFORE = """
SELECT id, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters
FROM {schema}.take(NULL, $1, $2, $3, NULL, '')
"""
# And for a look before 0017_lean, with its answer in the order of today.
LOOK_BEFORE = "SELECT takable, closed, (next - moment)::float8, false FROM {schema}.look($1, $2, $3)"
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::regclass"


class TestUpgrade:
    """Of a store as it was before jobs had `fresh_at` and `crashes`."""

    @pytest_asyncio.fixture
    async def old(self, schema: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch) -> asyncpg.Connection:
        with monkeypatch.context() as patch:
            patch.setattr("accoda.storage.postgres.migrate.MIGRATIONS", MIGRATIONS[:7])
            await migrate(sql, schema)
        return sql

    @staticmethod
    async def add(old: asyncpg.Connection, schema: str, count: int, *, delay: int = 0, key: str | None = None) -> None:
        keys = [key] * count if key else []
        args = [["q"] * count, [b"x"] * count, [], [delay] * count, [], [], [], keys, [], [], []]
        await old.fetch(queries_for(schema)["enqueue"], None, *args)

    @staticmethod
    async def take(old: asyncpg.Connection, schema: str, count: int, lease: int = 60_000) -> list[int]:
        return [row["id"] for row in await old.fetch(TAKE_BEFORE.format(schema=schema), "q", count, lease)]

    async def test_jobs_in_every_state_are_kept(self, old: asyncpg.Connection, url: str, schema: str) -> None:
        await self.add(old, schema, 4)
        await self.add(old, schema, 1, delay=900_000)
        await self.add(old, schema, 1, key="k")
        buried, taken = await self.take(old, schema, 2)
        await old.execute(f"UPDATE {schema}.jobs SET attempts = 7 WHERE id = $1", buried)
        bury = (
            f"SELECT {schema}.settle(NULL, $1, '{{7}}', '{{q}}', '{{2}}', '{{NULL}}', '{{}}', '{{}}', '{{why}}', '{{}}'"
        )
        await old.execute(bury + ", '{}'" * 11 + ")", [buried])
        async with await open_storage(url) as store:
            assert await old.fetchval(f"SELECT version FROM {schema}.layout") == len(MIGRATIONS)
            shown = {state: await store.browse("q", state) for state in STATES}
            assert {state: len(jobs) for state, jobs in shown.items()} == {
                "ready": 3, "delayed": 1, "taken": 1, "dead": 1, "done": 0,
            }  # fmt: skip
            assert {(job.fresh_at, job.crashes) for jobs in shown.values() for job in jobs} == {(0, 0)}
            assert await store.settle([Done(Lease("q", taken, 0))]) == []
            assert await store.revive([buried]) == 1
            await store.enqueue([NewJob("q", b"new", key="k", on_duplicate="replace")])
            jobs = await store.take("q", 9)
            assert (jobs[0].id, jobs[0].attempts, jobs[0].fresh_at) == (buried, 8, 8)
            assert [job.data for job in jobs] == [b"x", b"x", b"x", b"new"]

    async def test_a_lease_that_was_given_before_can_end_in_a_crash(
        self, old: asyncpg.Connection, url: str, schema: str
    ) -> None:
        await self.add(old, schema, 1)
        await self.take(old, schema, 1, lease=1)
        await asyncio.sleep(0.01)
        async with await open_storage(url) as store:
            (job,) = await store.take("q", 1)
            assert (job.attempts, job.fresh_at, job.crashes) == (1, 0, 1)

    async def test_a_call_of_the_version_before_goes_on_during_it_and_after_it(
        self, old: asyncpg.Connection, server: PostgresServer, url: str, schema: str, sql: asyncpg.Connection
    ) -> None:
        async def waiting(count: int) -> None:
            while await sql.fetchval(WAITING, f"{schema}.jobs") < count:
                await asyncio.sleep(0.005)

        await self.add(old, schema, 3)
        worker, reader = await asyncpg.connect(server.url), await asyncpg.connect(server.url)
        assert len(await self.take(worker, schema, 1)) == 1
        async with asyncio.timeout(20):
            async with reader.transaction():
                await reader.execute(f"LOCK TABLE {schema}.jobs IN ACCESS SHARE MODE")
                opening = asyncio.create_task(open_storage(url))
                await waiting(1)
                taking = asyncio.create_task(self.take(worker, schema, 1))
                await waiting(2)
            store = await opening
            assert len(await taking) == 1
            assert len(await self.take(worker, schema, 1)) == 1
        assert (await store.stats()).queues["q"].taken == 3
        await asyncio.gather(store.close(), worker.close(), reader.close())

    async def test_a_worker_still_needs_no_more_than_the_use_of_the_schema(
        self, old: asyncpg.Connection, url: str, schema: str
    ) -> None:
        await old.execute(f"CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA {schema} TO worker")
        async with await open_storage(url), await open_storage(url.replace("accoda@", "worker@")) as worker:
            await worker.enqueue([NewJob("q")])
            (job,) = await worker.take("q", 1)
            await worker.settle([Bury(job.lease, "why")])
            assert await worker.revive([job.id]) == 1
            (shown,) = await worker.browse("q", "ready")
            assert await worker.find(job.id) == shown

    async def test_a_verb_that_was_made_anew_has_its_settings(
        self, old: asyncpg.Connection, url: str, schema: str
    ) -> None:
        """PostgreSQL forgets them then; without them a plan may read the whole table."""
        settings = "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = $1::regnamespace AND prosecdef"
        before = {verb: set(its) for verb, its in await old.fetch(settings, schema)}
        async with await open_storage(url):
            after = {verb: set(its) for verb, its in await old.fetch(settings, schema)}
        of_session = {f"{name}={value}" for name, value in SESSION.items()}
        for verb in ("take", "finish", "enqueue_one", "finish_plain", "glance"):
            assert not after[verb] & of_session
            after[verb] |= of_session & before["enqueue"]
        assert {verb: after.pop(verb) for verb in before} == before
        lean = {"enqueue_one", "finish_plain", "glance"}
        assert set(after) == {"peek", "drop_job", "start_now", "place", "stretches"} | lean, "verbs that came since"
        assert after["peek"] == after["place"] == after["stretches"] == after["glance"] == before["take"]
        assert after["enqueue_one"] == after["finish_plain"] == before["enqueue"]
        assert after["drop_job"] == after["start_now"] == before["remove"]
        assert len(before) == 21


class TestUpgradeToPeek:
    """Of a store as it was before `peek` and `drop`, with jobs in it."""

    async def test_jobs_of_before_can_be_looked_at_and_dropped(
        self, url: str, schema: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("accoda.storage.postgres.migrate.MIGRATIONS", MIGRATIONS[:13])
            async with await open_storage(url) as old:
                join = NewJob("q", b"shared", key="k", on_duplicate="attach", waiter=b"w")
                shared, *_ = await old.enqueue([join, join, NewJob("q", rank=-1), NewJob("q", delay=900)])
                (running,) = await old.take("q", 1)
                assert await sql.fetchval(f"SELECT version FROM {schema}.layout") == 13
                async with await self.upgraded(url, monkeypatch) as store:
                    assert await sql.fetchval(f"SELECT version FROM {schema}.layout") == len(MIGRATIONS)
                    seen = await store.peek("q", after=1)
                    assert seen.job == await store.find(shared.id)
                    assert seen.waiters == (b"w",)
                    # Who opened the store before goes on with it.
                    assert (await old.enqueue([join]))[0].waiters == 3
                    assert not await store.drop("q", shared.id, 2)
                    assert await store.drop("q", shared.id, 3)
                    assert await store.drop("q", running.id, 0)
                    assert await old.settle([Done(running.lease)]) != []
                    stats = (await old.stats()).queues["q"]
                    assert (stats.ready, stats.taken, stats.delayed) == (0, 0, 1)

    @staticmethod
    async def upgraded(url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
        with monkeypatch.context() as patch:
            patch.setattr("accoda.storage.postgres.migrate.MIGRATIONS", MIGRATIONS)
            return await open_storage(url)


class TestUpgradeToStartNow:
    """Of a store as it was before `start_now`, with jobs in it."""

    async def test_jobs_of_before_are_started_while_who_was_there_works_on(
        self, url: str, schema: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("accoda.storage.postgres.migrate.MIGRATIONS", MIGRATIONS[:14])
            async with await open_storage(url) as old:
                join = NewJob("q", key="k", on_duplicate="attach", waiter=b"w", delay=900)
                shared, _, retried = await old.enqueue([join, join, NewJob("q")])
                (job,) = await old.take("q", 1)
                await old.settle([Retry(job.lease, delay=900)])
                assert await sql.fetchval(f"SELECT version FROM {schema}.layout") == 14
                old._client.queries["look"] = LOOK_BEFORE.format(schema=schema)  # type: ignore[attr-defined]
                waiting = asyncio.create_task(old.wait(["q"], 60))
                async with await TestUpgradeToPeek.upgraded(url, monkeypatch) as store:
                    assert await sql.fetchval(f"SELECT version FROM {schema}.layout") == len(MIGRATIONS)
                    assert await store.start_now([retried.id, shared.id]) == 2
                    assert await asyncio.wait_for(waiting, 20)
                    jobs = await old.take("q", 9)
                    told = [(job.id, job.attempts, job.waiters) for job in jobs]
                    assert told == [(shared.id, 0, 2), (retried.id, 1, 0)]
                    assert await old.settle([Done(job.lease) for job in jobs]) == []

    async def test_a_worker_needs_no_more_than_the_use_of_the_schema(
        self, url: str, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with await open_storage(url):
            await sql.execute(f"CREATE ROLE starter LOGIN; GRANT USAGE ON SCHEMA {schema} TO starter")
            async with await open_storage(url.replace("accoda@", "starter@")) as worker:
                (made,) = await worker.enqueue([NewJob("q", delay=900)])
                assert await worker.start_now([made.id]) == 1


class TestUpgradeToPlace:
    """Of a store as it was before `place`, with jobs in it."""

    async def test_jobs_of_before_are_found_in_their_line_while_who_was_there_works_on(
        self, url: str, schema: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("accoda.storage.postgres.migrate.MIGRATIONS", MIGRATIONS[:15])
            async with await open_storage(url) as old:
                ids = [each.id for each in await old.enqueue([NewJob("q", rank=n % 3) for n in range(300)])]
                assert await sql.fetchval(f"SELECT version FROM {schema}.layout") == 15
                async with await TestUpgradeToPeek.upgraded(url, monkeypatch) as store:
                    assert await sql.fetchval(f"SELECT version FROM {schema}.layout") == len(MIGRATIONS)
                    place = await store.place(ids[299], 20)
                    assert place is not None and (place.ahead, place.newer, place.exact) == (299, 0, True)
                    (job,) = await old.take("q", 1)
                    assert await old.settle([Done(job.lease)]) == []
                    place = await store.place(ids[150], 20)
                    assert place is not None and not place.exact and 45 <= place.ahead <= 55

    async def test_a_worker_needs_no_more_than_the_use_of_the_schema(
        self, url: str, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with await open_storage(url):
            await sql.execute(f"CREATE ROLE onlooker LOGIN; GRANT USAGE ON SCHEMA {schema} TO onlooker")
            async with await open_storage(url.replace("accoda@", "onlooker@")) as worker:
                made = await worker.enqueue([NewJob("q")] * 9)
                place = await worker.place(made[4].id, 1)
                assert place is not None and (place.ahead, place.exact) == (4, False)


class TestUpgradeToLean:
    """Of a store as it was before the usual calls had less to do, with jobs in it."""

    async def test_jobs_of_before_are_taken_while_calls_of_before_go_on(
        self, url: str, schema: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("accoda.storage.postgres.migrate.MIGRATIONS", MIGRATIONS[:16])
            await migrate(sql, schema)
        enqueue = queries_for(schema)["enqueue"]
        await sql.fetch(enqueue, None, ["q"] * 3, [b"1", b"2", b"3"], *([] for _ in range(9)))
        async with await open_storage(url) as store:
            assert await sql.fetchval(f"SELECT version FROM {schema}.layout") == len(MIGRATIONS)
            jobs = await store.take("q", 2)
            assert [job.data for job in jobs] == [b"1", b"2"]
            assert await asyncio.gather(*(store.settle([Done(job.lease)]) for job in jobs)) == [[], []]
            assert await sql.fetchval(f"SELECT takable FROM {schema}.look(NULL, '{{q}}', false)")
            assert len(await sql.fetch(TAKE_BEFORE.format(schema=schema), "q", 5, 60_000)) == 1
            waiting = asyncio.create_task(store.wait(["q"], 60))
            await store.stats()
            await sql.fetch(enqueue, None, ["q"], [b"4"], *([] for _ in range(8)), ["+q"])
            assert await waiting
            assert [job.data for job in await store.take("q", 5)] == [b"4"]

    async def test_a_worker_needs_no_more_than_the_use_of_the_schema(
        self, url: str, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with await open_storage(url):
            await sql.execute(f"CREATE ROLE hand LOGIN; GRANT USAGE ON SCHEMA {schema} TO hand")
            async with await open_storage(url.replace("accoda@", "hand@")) as worker:
                await asyncio.gather(*(worker.enqueue([NewJob("q")]) for _ in range(9)))
                assert await worker.wait(["q"], 1)
                shares = await asyncio.gather(*(worker.take("q", 1) for _ in range(9)))
                leases = [job.lease for share in shares for job in share]
                assert await asyncio.gather(*(worker.settle([Done(lease)]) for lease in leases)) == [[]] * 9


class TestPlans:
    """Of a store in which nearly all jobs wait in one queue, and which the server knows by its statistics."""

    async def test_a_queue_without_jobs_is_counted_browsed_and_purged_without_a_walk_through_the_others(
        self, url: str, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with await open_storage(url) as store:
            await store.enqueue([NewJob("small")])
            assert len(await store.take("small", 1)) == 1
            await store.enqueue([NewJob("large")] * 20_000)
            await sql.execute(f"VACUUM ANALYZE {schema}.jobs")
        async with await open_storage(f"{url}&pool=1") as store:  # whose session has made no plans yet
            reads = f"SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE schemaname = '{schema}' AND relname = 'jobs'"
            before = await sql.fetchval(reads)
            assert (await store.stats()).queues["small"].ready == 0
            assert await store.browse("small", "ready") == []
            assert await store.purge("small", "ready") == 0
            assert await store.purge("small", "ready", limit=5) == 0
        await gone(sql)
        assert await sql.fetchval(reads) - before < 1000

    async def test_the_ends_of_a_rank_are_found_without_a_walk_through_the_jobs_of_others(
        self, url: str, schema: str, sql: asyncpg.Connection
    ) -> None:
        async with await open_storage(url) as store:
            first, _ = await store.enqueue([NewJob("first")] * 2)
            await store.enqueue([NewJob("large")] * 20_000)
            _, last = await store.enqueue([NewJob("last")] * 2)
        await sql.execute(f"VACUUM ANALYZE {schema}.jobs")
        reads = f"SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE schemaname = '{schema}' AND relname = 'jobs'"
        before = await sql.fetchval(reads)
        other = await asyncpg.connect(url.partition("?")[0])
        look = f"SELECT far FROM {schema}.stretches($1, ARRAY[$2]::float8[], ARRAY[$3]::bigint[], $4, $5)"
        assert await other.fetchval(look, "first", 0.0, first.id, [1], [False]) == first.id + 1
        assert await other.fetchval(look, "last", 0.0, last.id + 1, [1], [True]) == last.id - 1
        await other.close()
        await gone(sql)
        assert await sql.fetchval(reads) - before < 1000


async def gone(sql: asyncpg.Connection) -> None:
    """Return when the other sessions have ended: what they have read is counted then."""
    async with asyncio.timeout(10):
        others = (
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        while await sql.fetchval(others):
            await asyncio.sleep(0.01)
    await sql.execute("SELECT pg_stat_clear_snapshot()")
