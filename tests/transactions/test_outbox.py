"""A store elsewhere, and an outbox in the caller's database: the job comes once, if the transaction commits."""

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest
import pytest_asyncio
from proof.chaos.transactions.callers import POSTGRES, SQLITE, Caller, Opener
from proof.servers.pgbouncer import PgBouncer
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from proof.servers.redis import RedisServer

from accoda import App, ManualClock, NewJob
from accoda.errors import InvalidInput
from accoda.model import Done
from accoda.transactions import outbox_schema, relay
from accoda.transactions.open import open_table
from accoda.transactions.outbox import new_id, read_outbox
from accoda.transactions.relay import Relay

DRIVERS = {
    **{f"postgresql-{name}": opener for name, opener in POSTGRES.items()},
    **{f"sqlite-{name}": opener for name, opener in SQLITE.items()},
}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    server = need(lambda: RedisServer().start())
    yield server
    server.stop()


@pytest.fixture(scope="module")
def orders(server: PostgresServer) -> str:
    """A PostgreSQL database of a caller."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE outbox")
    url = server.url.rpartition("/")[0] + "/outbox"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id serial PRIMARY KEY, item text)")
        connection.execute(outbox_schema("postgresql"))  # type: ignore[call-overload]
    return url


def new_file(folder: Path, *, mode: str = "wal") -> str:
    """An SQLite file of a caller."""
    path = folder / "app.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item text)")
        connection.executescript(outbox_schema("sqlite"))
    return f"sqlite:///{path}"


@pytest.fixture
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind: str = request.getfixturevalue("driver")
    return request.getfixturevalue("orders") if kind.startswith("postgresql") else new_file(tmp_path)


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def app(redis: RedisServer, outbox: str) -> AsyncIterator[App]:
    async with App(redis.url, outbox=outbox) as app:
        yield app


@pytest_asyncio.fixture
async def caller(driver: str, outbox: str) -> AsyncIterator[Caller]:
    opener: Opener = DRIVERS[driver]
    caller = await opener(outbox)
    await caller.execute("INSERT INTO orders (item) VALUES ('tea')")
    yield caller
    await caller.close()


async def stored(app: App, queue: str) -> list[object]:
    """What is in the store after all that waits in the outbox was relayed."""
    await app.run_until_idle()
    return [msgspec.msgpack.decode(job.data) for job in await app.storage.browse(queue, "ready")]


async def test_a_commit_sends_the_jobs_once_and_in_order(app: App, caller: Caller, queue: str) -> None:
    told = await caller.enqueue(app, queue, 1)
    many = await caller.enqueue_many(app, queue, [2, 3])
    assert (told.id, told.what, told.waiters) == (0, "outbox", 0)
    assert many[0].outbox_id == many[1].outbox_id != told.outbox_id
    assert await stored(app, queue) == []
    await caller.commit()
    assert await stored(app, queue) == [1, 2, 3]
    assert await stored(app, queue) == [1, 2, 3]


async def test_a_rollback_takes_the_job_back(app: App, caller: Caller, queue: str) -> None:
    await caller.enqueue(app, queue, 1)
    await caller.rollback()
    assert await stored(app, queue) == []


async def test_a_savepoint_that_is_rolled_back_takes_its_job_back(app: App, caller: Caller, queue: str) -> None:
    await caller.enqueue(app, queue, 1)
    await caller.execute("SAVEPOINT s")
    await caller.enqueue(app, queue, 2)
    await caller.execute("ROLLBACK TO SAVEPOINT s")
    await caller.enqueue(app, queue, 3)
    await caller.commit()
    assert await stored(app, queue) == [1, 3]


async def test_a_connection_that_breaks_before_the_commit_takes_the_job_back(
    app: App, caller: Caller, queue: str
) -> None:
    await caller.enqueue(app, queue, 1)
    await caller.close()
    assert await stored(app, queue) == []


async def test_a_key_holds_over_outbox_and_store(app: App, caller: Caller, queue: str) -> None:
    await caller.enqueue(app, queue, 1, key="order-17")
    await app.enqueue(queue, 2, key="order-17")
    await caller.commit()
    assert await stored(app, queue) == [2]


# -- what does not depend on the driver


@pytest.fixture(params=["postgresql", "wal", "delete"])
def any_outbox(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("orders"))
    return new_file(tmp_path, mode=request.param)


@contextlib.asynccontextmanager
async def opened(outbox: str) -> AsyncIterator[Caller]:
    caller = await (POSTGRES["psycopg"] if outbox.startswith("postgresql") else SQLITE["sqlite3"])(outbox)
    yield caller
    await caller.close()


async def test_a_commit_wakes_the_relay(redis: RedisServer, any_outbox: str, queue: str) -> None:
    async with App(redis.url, outbox=any_outbox) as app, opened(any_outbox) as caller, asyncio.timeout(30):
        relaying = asyncio.create_task(Relay(app.transactions.outbox).run(app.storage))  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        took = []
        for n in range(5):
            await asyncio.sleep(0.1)
            await caller.enqueue(app, queue, n)
            await caller.commit()
            committed = loop.time()
            while not await app.storage.take(queue, 1):
                await app.storage.wait([queue], 10)
            took.append(loop.time() - committed)
        relaying.cancel()
        await asyncio.gather(relaying, return_exceptions=True)
    assert sorted(took)[2] < 0.3, "the slow poll is every second"


async def test_rows_are_relayed_through_pgbouncer_in_transaction_mode(
    redis: RedisServer, server: PostgresServer, orders: str, queue: str
) -> None:
    with need(lambda: PgBouncer(server, "pool_mode = transaction")) as pooler:
        outbox = f"{pooler.url.rpartition('/')[0]}/{orders.rpartition('/')[2]}"
        async with App(redis.url, outbox=outbox) as app, opened(outbox) as caller, asyncio.timeout(30):
            relaying = asyncio.create_task(Relay(app.transactions.outbox).run(app.storage))  # type: ignore[arg-type]
            for n in range(3):
                await caller.enqueue(app, queue, n)
                await caller.commit()
                while len(await app.storage.browse(queue, "ready")) <= n:
                    await asyncio.sleep(0.02)
            relaying.cancel()
            await asyncio.gather(relaying, return_exceptions=True)


async def test_a_delay_counts_from_the_transaction(orders: str, queue: str) -> None:
    async with App("memory://", clock=ManualClock(), outbox=orders) as app, opened(orders) as caller:
        await caller.enqueue(app, queue, 1, delay=3600)
        await caller.execute("UPDATE accoda_outbox SET written_at = written_at - 600000")
        await caller.commit()
        await app.run_until_idle()
        (job,) = await app.storage.browse(queue, "delayed")
        assert 2990_000 < job.start_time - app.now() <= 3000_000


async def test_what_a_relay_left_behind_is_finished_by_the_next_and_nothing_twice(
    redis: RedisServer, any_outbox: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that stops anywhere: after its take, before its step, after it, before it deletes the rows."""
    monkeypatch.setattr(relay, "LEASE", 0.2)
    async with App(redis.url, outbox=any_outbox) as app, opened(any_outbox) as caller:
        one, other = (Relay(app.transactions.outbox) for _ in range(2))  # type: ignore[arg-type]
        name = await one._find_queue()
        for n in range(3):
            await caller.enqueue(app, queue, n)
            await caller.commit()
        async with open_table(app.transactions.outbox) as table:  # type: ignore[arg-type]
            stale = await one._take(app.storage, name)
            rows = await table.read([], 10)
            assert stale is not None
            assert await other.run_once(app.storage) == 0, "the first one has the relay job"
            await asyncio.sleep(0.3)
            assert await other.run_once(app.storage) == 3
            assert await one._send(app.storage, stale, rows) == 0, "its lease is over, so its step is refused"
        assert await stored(app, queue) == [0, 1, 2]

        await caller.enqueue(app, queue, 3)
        await caller.commit()
        async with open_table(app.transactions.outbox) as table:  # type: ignore[arg-type]
            taken = await one._take(app.storage, name)
            assert taken is not None
            assert await one._send(app.storage, taken, await table.read([], 10)) == 1
            assert await table.count() == 1, "it was sent, and is not deleted yet"
            assert await other.run_once(app.storage) == 0
            assert await table.count() == 0
        assert await stored(app, queue) == [0, 1, 2, 3]


async def test_rows_that_cannot_be_read_stay_and_hold_up_no_other(
    redis: RedisServer, any_outbox: str, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with App(redis.url, outbox=any_outbox) as app, opened(any_outbox) as caller:
        for data in ("00ff", "01ff", "0181", "02"):
            value = f"'\\x{data}'" if any_outbox.startswith("postgresql") else f"x'{data}'"
            await caller.execute(f"INSERT INTO accoda_outbox (id, jobs) VALUES ('{new_id()}', {value})")
        await caller.enqueue(app, queue, 1)
        await caller.commit()
        with caplog.at_level(logging.ERROR, "accoda.outbox"):
            assert await stored(app, queue) == [1]
        assert caplog.text.count("cannot be relayed") == 4
        async with open_table(app.transactions.outbox) as table:  # type: ignore[arg-type]
            assert await table.count() == 4
        await caller.execute("DELETE FROM accoda_outbox")
        await caller.commit()


async def test_a_row_that_the_store_refuses_is_set_aside(
    redis: RedisServer, any_outbox: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with App(redis.url, outbox=any_outbox) as app, opened(any_outbox) as caller:
        for n in range(5):
            await caller.enqueue(app, queue, n)
        await caller.commit()
        store = await app.connections.get()
        settle = store.settle

        async def refuse(outcomes):  # type: ignore[no-untyped-def]
            bad = [job for outcome in outcomes for job in outcome.then if type(outcome) is Done and job.data == b"\x02"]
            if bad:
                raise InvalidInput("jobs", "this store takes no twos")
            return await settle(outcomes)

        monkeypatch.setattr(store, "settle", refuse)
        assert await stored(app, queue) == [0, 1, 3, 4]
        monkeypatch.undo()
        assert await stored(app, queue) == [0, 1, 3, 4, 2]


async def test_two_outboxes_share_a_store_and_keep_apart(
    redis: RedisServer, orders: str, tmp_path: Path, queue: str
) -> None:
    outboxes = [orders, new_file(tmp_path)]
    for outbox in outboxes:
        async with App(redis.url, outbox=outbox) as app, opened(outbox) as caller:
            await caller.enqueue(app, queue, outbox)
            await caller.commit()
    for n, outbox in enumerate(outboxes, 1):
        async with App(redis.url, outbox=outbox) as app:
            assert await stored(app, queue) == outboxes[:n]


async def test_an_outbox_that_was_emptied_is_found_again(redis: RedisServer, any_outbox: str, queue: str) -> None:
    async with App(redis.url, outbox=any_outbox) as app, opened(any_outbox) as caller, asyncio.timeout(20):
        relaying = asyncio.create_task(Relay(app.transactions.outbox).run(app.storage))  # type: ignore[arg-type]
        for n in range(2):
            await caller.execute("DELETE FROM accoda_outbox")
            await caller.enqueue(app, queue, n)
            await caller.commit()
            while len(await app.storage.browse(queue, "ready")) <= n:
                await asyncio.sleep(0.02)
        relaying.cancel()
        await asyncio.gather(relaying, return_exceptions=True)


async def test_the_relay_makes_the_table(redis: RedisServer, server: PostgresServer, tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE fresh")
    for url in (f"sqlite:///{tmp_path}/new.db", server.url.rpartition("/")[0] + "/fresh"):

        async def count(url: str = url) -> int:
            async with open_table(read_outbox(url)) as table:
                return await table.count()

        assert await asyncio.gather(*(count() for _ in range(5))) == [0] * 5


async def test_a_large_call_is_one_row_and_one_step(redis: RedisServer, any_outbox: str, queue: str) -> None:
    async with App(redis.url, outbox=any_outbox) as app, opened(any_outbox) as caller:
        await caller.enqueue(app, queue, "first")
        await caller.enqueue_many(app, queue, range(3000))
        await caller.enqueue(app, queue, "last")
        await caller.commit()
        assert await app._relay_rows() == 3
        assert (await app.storage.stats()).queues[queue].ready == 3002


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_missing_table_is_named_in_a_note(
    server: PostgresServer, tmp_path: Path, queue: str, driver: str
) -> None:
    url = server.url if driver.startswith("postgresql") else f"sqlite:///{tmp_path}/new.db"
    (tmp_path / "new.db").touch()
    caller = await DRIVERS[driver](url)
    with pytest.raises(Exception) as caught:
        await caller.enqueue(App("memory://", outbox=url), queue)
    assert f'outbox_schema("{driver.partition("-")[0]}")' in "".join(getattr(caught.value, "__notes__", []))
    await caller.close()


async def test_what_is_not_configured_says_what_to_configure(
    redis: RedisServer, orders: str, tmp_path: Path, queue: str
) -> None:
    file = new_file(tmp_path)
    without, jobs = App(redis.url), [NewJob(queue)]
    async with opened(orders) as caller:
        with pytest.raises(InvalidInput, match=r'App\(url, outbox="postgresql://'):
            await caller.enqueue(without, queue)
        with pytest.raises(InvalidInput, match="neither its store nor its outbox"):
            await caller.enqueue(App(redis.url, outbox=file), queue)
    async with opened(file) as caller:
        with pytest.raises(InvalidInput, match=r"two copies of the SQLite library.*sqlite:///app.db"):
            await caller.enqueue(App(f"sqlite:///{tmp_path}/jobs.db"), queue)
        elsewhere = tmp_path / "other.db"
        elsewhere.touch()
        with pytest.raises(InvalidInput, match=r"the app's outbox is .*other.db"):
            await caller.enqueue(App(redis.url, outbox=f"sqlite:///{elsewhere}"), queue)
    with pytest.raises(InvalidInput, match="the file of the store itself"):
        App(file, outbox=file)
    (tmp_path / "link.db").symlink_to(tmp_path / "other.db")
    for same in (f"sqlite:///{os.path.relpath(elsewhere)}", f"sqlite:///{tmp_path}/link.db"):
        with pytest.raises(InvalidInput, match="the file of the store itself"):
            App(f"sqlite:///{elsewhere}", outbox=same)
    with pytest.raises(InvalidInput, match="leave it out"):
        App(orders, outbox=orders)
    with pytest.raises(InvalidInput, match="it is always asyncpg"):
        App(redis.url, outbox="postgresql+psycopg://host/db")
    assert jobs


async def test_the_result_of_a_job_in_the_outbox_is_refused(redis: RedisServer, orders: str, queue: str) -> None:
    app = App(redis.url, outbox=orders)
    async with opened(orders) as caller:
        told = await caller.enqueue(app, queue)
        with pytest.raises(InvalidInput, match="no id"):
            await app.result(told)
        await caller.rollback()
