"""A store in SQLite, and a caller with an apsw connection to its file: the job is part of the transaction there."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
import pytest_asyncio
from proof.chaos.transactions import callers
from proof.chaos.transactions.callers import Caller

from accoda import App, Lanes, ManualClock
from accoda.errors import InvalidInput


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.connections.get()
        with contextlib.closing(apsw.Connection(f"{tmp_path}/jobs.db")) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        yield app


@pytest_asyncio.fixture
async def caller(app: App) -> AsyncIterator[Caller]:
    caller = await callers.apsw(app.url)
    caller.connection.row_trace = lambda cursor, row: {"row": row}
    await caller.execute("INSERT INTO orders (item) VALUES ('tea')")
    yield caller
    await caller.close()


async def waiting(app: App) -> list[int]:
    return [job.id for job in await app.storage.browse("orders", "ready")]


async def test_a_commit_stores_the_job_whose_id_was_given_at_once(app: App, caller: Caller) -> None:
    told = await caller.enqueue(app, "orders", {"n": 1}, key="k")
    many = await caller.enqueue_many(app, "orders", range(30))
    assert (told.what, told.id > 0) == ("created", True)
    await caller.commit()
    assert await waiting(app) == [told.id, *(one.id for one in many)]
    assert (await app.storage.stats()).queues["orders"].ready == 31


async def test_a_rollback_takes_the_job_and_its_queue_back(app: App, caller: Caller) -> None:
    await caller.enqueue(app, "orders", 1)
    await caller.rollback()
    assert await waiting(app) == []
    await app.enqueue("other", 1)
    await app.enqueue("orders", 1)
    assert len(await waiting(app)) == 1


async def test_a_savepoint_that_is_rolled_back_takes_its_job_back(app: App, caller: Caller) -> None:
    kept = await caller.enqueue(app, "orders", 1)
    await caller.execute("SAVEPOINT s")
    await caller.enqueue(app, "orders", 2)
    await caller.execute("ROLLBACK TO SAVEPOINT s")
    after = await caller.enqueue(app, "orders", 3)
    await caller.commit()
    assert await waiting(app) == [kept.id, after.id]


async def test_the_store_goes_on_with_what_the_caller_wrote(app: App, caller: Caller) -> None:
    """Ids, queues and counters that the store's writer remembers are read again."""
    await caller.rollback()
    ids = []
    for n in range(5):
        ids.append((await app.enqueue(f"queue-{n}", n)).id)
        await caller.execute("INSERT INTO orders (item) VALUES ('tea')")
        ids.append((await caller.enqueue(app, f"mine-{n}", n)).id)
        await caller.commit()
        ids.append((await app.enqueue(f"mine-{n}", n)).id)
    assert len(set(ids)) == 15
    stats = (await app.storage.stats()).queues
    assert [stats[f"mine-{n}"].ready for n in range(5)] == [2] * 5


async def test_a_key_is_created_once_by_two_transactions(app: App, caller: Caller) -> None:
    mine = await caller.enqueue(app, "orders", 1, key="order-17")
    other = asyncio.create_task(app.enqueue("orders", 2, key="order-17"))
    await asyncio.sleep(0.05)
    assert not other.done(), "it waits for the end of the first"
    await caller.commit()
    assert ((await other).what, (await other).id) == ("kept", mine.id)


async def test_lanes_hold(app: App, caller: Caller) -> None:
    await caller.rollback()
    await app.storage.set_lanes("orders", Lanes(limit=2))
    await caller.enqueue_many(app, "orders", range(3), lane="anna")
    stats = (await app.storage.stats()).queues["orders"]
    assert (stats.ready, stats.held) == (2, 1)


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_the_commit_wakes_a_waiting_worker_soon(app: App, caller: Caller, in_transaction: bool) -> None:
    await caller.rollback()
    waiting = asyncio.create_task(app.storage.wait(["orders"], 30))
    await asyncio.sleep(0.05)
    if in_transaction:
        await caller.execute("INSERT INTO orders (item) VALUES ('tea')")
    await caller.enqueue(app, "orders", 1)
    if in_transaction:
        await caller.commit()
    async with asyncio.timeout(0.5):  # the slow poll is every second
        assert await waiting


async def test_many_commits_share_one_thread_that_wakes_others_and_ends(app: App, caller: Caller) -> None:
    await caller.rollback()

    def announcing() -> int:
        return [thread.name for thread in threading.enumerate()].count("accoda-commit")

    async def until_told() -> None:
        async with asyncio.timeout(5):
            while announcing():
                await asyncio.sleep(0.01)

    await until_told()  # what other tests have committed
    most = 0
    for n in range(50):
        waiting = asyncio.create_task(app.storage.wait([f"orders-{n}"], 30))
        await caller.execute("INSERT INTO orders (item) VALUES ('tea')")
        await caller.enqueue(app, f"orders-{n}", n)
        await caller.commit()
        most = max(most, announcing())
        async with asyncio.timeout(0.5):
            assert await waiting
    assert most == 1
    await until_told()


async def test_the_clock_of_the_app_holds(tmp_path: Path) -> None:
    async with App(f"sqlite:///{tmp_path}/jobs.db", clock=ManualClock()) as app:
        await app.connections.get()
        caller = await callers.apsw(app.url)
        await caller.enqueue(app, "orders", 1, delay=60)
        await caller.close()
        (job,) = await app.storage.browse("orders", "delayed")
        assert job.start_time == app.now() + 60_000


async def test_another_file_and_one_without_a_store_are_refused(app: App, tmp_path: Path) -> None:
    other = await callers.apsw(f"sqlite:///{tmp_path}/other.db")
    await other.execute("CREATE TABLE t (x)")
    await other.commit()
    with pytest.raises(InvalidInput, match=r"other.db, but the app's store is .*jobs.db"):
        await other.enqueue(app, "orders", 1)
    with pytest.raises(InvalidInput, match="accoda migrate"):
        await other.enqueue(App(f"sqlite:///{tmp_path}/other.db"), "orders", 1)
    with pytest.raises(InvalidInput, match="if the store is SQLite"):
        await other.enqueue(App("redis://nowhere"), "orders", 1)
    await other.close()
