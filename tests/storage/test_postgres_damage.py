"""Records of a PostgreSQL store that cannot be read stop nobody, and are set aside where people find them."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
import pytest_asyncio

from accoda import Done, ManualClock, NewJob, Store, open_storage
from accoda.testing.damage.checks import Q, check_documents, check_good_jobs_are_done
from accoda.testing.servers.postgres import PostgresServer
from accoda.testing.servers.pytest import need

STATES = ("ready", "delayed", "taken", "dead")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with need(lambda: PostgresServer(durable=False, settings=["synchronous_commit=off"])) as running:
        yield running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_790_000_000_000)


@pytest_asyncio.fixture
async def sql(server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.url)
    await connection.execute("DROP SCHEMA IF EXISTS accoda CASCADE; SET search_path TO accoda")
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def store(server: PostgresServer, clock: ManualClock, sql: asyncpg.Connection) -> AsyncIterator[Store]:
    async with await open_storage(server.url, clock=clock) as store:
        yield store


async def counted(sql: asyncpg.Connection) -> Counter[str]:
    found = dict(await sql.fetch("SELECT state, count(*) FROM jobs GROUP BY state"))
    assert set(found) <= set(range(5)), "a record is in no state"
    return Counter({name: found.get(number, 0) for number, name in enumerate(STATES)})


@pytest.mark.parametrize("seed", range(2))
async def test_good_jobs_are_done_among_thousands_of_damaged_records(
    store: Store, clock: ManualClock, sql: asyncpg.Connection, seed: int
) -> None:
    async def advance(seconds: float) -> None:
        clock.advance(seconds)

    stats = await check_good_jobs_are_done(store, advance, seed)
    assert await counted(sql) == stats


async def test_documents_that_cannot_be_read_are_none_and_can_be_written_anew(store: Store) -> None:
    await check_documents(store)


async def test_a_key_whose_holder_cannot_be_read_can_be_used(store: Store, sql: asyncpg.Connection) -> None:
    await store.enqueue([NewJob(Q, key="k", waiter=b"w")])
    await sql.execute("UPDATE jobs SET waiters = 2147483647, attempts = 2147483647")
    await store.enqueue([NewJob(Q, key="k", waiter=b"v", on_duplicate="attach"), NewJob(Q, b"good")])
    await store.enqueue([NewJob(Q, b"new", key="k", on_duplicate="replace")])
    assert [job.data for job in await store.take(Q, 9)] == [b"good"]
    (dead,) = await store.browse(Q, "dead")
    assert dead.reason == "unreadable record: attempts is 2147483646, waiters is 2147483647"
    assert (dead.data, dead.waiters) == (b"new", 2)


async def test_a_job_that_is_damaged_while_it_runs_spoils_no_batch(store: Store, sql: asyncpg.Connection) -> None:
    await store.enqueue([NewJob(Q, keep_for=60.0) for _ in range(5)])
    jobs = await store.take(Q, 5)
    changes = ("keep_for = 'Infinity'", "keep_for = -1", "attempts = -1", "state = 9")
    for change, job in zip(changes, jobs, strict=False):
        await sql.execute(f"UPDATE jobs SET {change} WHERE id = $1", job.id)
    refused = await store.settle([Done(job.lease) for job in jobs])
    assert [each.lease.id for each in refused] == [jobs[2].id, jobs[3].id]
    info = await store.find(jobs[3].id)
    assert info is not None
    assert (info.state, info.reason) == ("dead", "unreadable record: state is 9")
    stats = (await store.stats()).queues[Q]
    assert (stats.done, stats.taken, stats.dead, stats.total) == (3, 1, 1, 2)


async def test_a_look_passes_over_what_cannot_be_read(store: Store, sql: asyncpg.Connection) -> None:
    bad, good = await store.enqueue([NewJob(Q, key="k", waiter=b"w"), NewJob(Q, b"good", key="l")])
    await sql.execute("UPDATE jobs SET attempts = -1 WHERE id = $1", bad.id)
    seen = await store.peek(Q)
    assert seen.job is not None
    assert (seen.job.id, seen.job.data) == (good.id, b"good")
    (dead,) = await store.browse(Q, "dead")
    assert (dead.id, dead.reason, dead.waiters) == (bad.id, "unreadable record: attempts is -1", 1)
    await sql.execute("UPDATE jobs SET state = -1 WHERE id = $1", good.id)
    assert (await store.peek(Q, "l", after=0)).job is None, "who cannot be read holds nothing"
    assert (await store.stats()).queues[Q].dead == 2


async def test_a_job_that_cannot_be_read_is_not_dropped(store: Store, sql: asyncpg.Connection) -> None:
    (bad,) = await store.enqueue([NewJob(Q, key="k", waiter=b"w")])
    await sql.execute("UPDATE jobs SET waiters = -1")
    assert not await store.drop(Q, bad.id, 9), "nobody knows how many wait for it"
    info = await store.find(bad.id)
    assert info is not None
    assert (info.state, info.waiters) == ("dead", 1)
