"""docs/transactions.md: every example runs, with a commit and with a rollback; the table names what there is."""

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec
import psycopg
import psycopg2
import pytest
import pytest_asyncio
from proof.chaos.transactions.callers import django_connections
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.recipes import Page

from accoda import App
from accoda.envelope import unwrap
from accoda.errors import InvalidInput, StorageReadOnly
from accoda.storage.common import caller_connection
from accoda.transactions.outbox import outbox_schema

PAGE = Page("transactions.md")


@pytest.fixture(scope="module")
def place(server: Any) -> str:
    """The database of the page, which is new: the jobs in it are those of its examples."""
    return new_database(server.url, "page")


@pytest.fixture(scope="module")
def elsewhere(server: Any) -> str:
    """A database without a store."""
    return new_database(server.url, "page_outbox")


def new_database(server: str, name: str) -> str:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    url = f"{server.rpartition('/')[0]}/{name}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id serial PRIMARY KEY, item text UNIQUE, state text)")
    return url


@pytest_asyncio.fixture
async def page(
    place: str, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, Any]]:
    """The names of the page, with the stores of this test in place of those that it names."""
    monkeypatch.chdir(tmp_path)
    scope = PAGE.examples()
    real = {"app": App(place), "jobs": App("memory://", outbox=elsewhere)}
    for name, app in real.items():
        scope[name].connections = app.connections
        scope[name].transactions.outbox = app.transactions.outbox
    await scope["app"].connections.get()
    yield scope
    for name in (*real, "shop", "local"):
        await asyncio.to_thread(scope[name].sync.close)
        await scope[name].close()


async def jobs_of(app: App, queue: str) -> list[Any]:
    found = [msgspec.msgpack.decode(unwrap(job.data)[1]) for job in await app.storage.browse(queue, "ready")]
    await app.storage.purge(queue, "ready")
    return found


def orders(place: str) -> list[int]:
    with psycopg.connect(place) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM orders ORDER BY id").fetchall()]


Placed = Callable[[dict[str, Any], str, str], Any]


def with_session(page: dict[str, Any], url: str, item: str) -> None:
    engine = create_engine(url.replace("://", "+psycopg://"))
    try:
        with Session(engine) as session:
            page["place_order"](session, item)
    finally:
        engine.dispose()


def with_model(page: dict[str, Any], url: str, item: str) -> None:
    engine = create_engine(url.replace("://", "+psycopg2://"))
    try:
        with Session(engine) as session:
            page["place_new_order"](session, item)
    finally:
        engine.dispose()


def with_psycopg(page: dict[str, Any], url: str, item: str) -> None:
    with psycopg.connect(url) as connection:
        page["order_with_psycopg"](connection, item)


def with_psycopg2(page: dict[str, Any], url: str, item: str) -> None:
    with contextlib.closing(psycopg2.connect(url)) as connection:
        page["order_with_psycopg2"](connection, item)


async def with_async_psycopg(page: dict[str, Any], url: str, item: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await page["order_with_async_psycopg"](connection, item)


async def with_asyncpg(page: dict[str, Any], url: str, item: str) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await page["order_with_asyncpg"](pool, item)


async def with_async_session(page: dict[str, Any], url: str, item: str) -> None:
    engine = create_async_engine(url.replace("://", "+asyncpg://"))
    try:
        async with AsyncSession(engine) as session:
            await page["order_with_async_session"](session, item)
    finally:
        await engine.dispose()


def with_django(page: dict[str, Any], url: str, item: str) -> None:
    from django.db import connections

    try:
        page["order_with_django"](item)
    finally:
        connections["default"].close()


@pytest.fixture
def django_database(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django's default database is that of the page."""
    from django.db import connections

    monkeypatch.setitem(connections.__dict__, "settings", django_connections(place).settings)


@pytest.mark.usefixtures("django_database")
@pytest.mark.parametrize(
    "placed",
    [
        with_session,
        with_model,
        with_psycopg,
        with_async_psycopg,
        with_asyncpg,
        with_psycopg2,
        with_async_session,
        with_django,
    ],
)
async def test_an_order_has_an_invoice_and_one_that_fails_has_none(
    page: dict[str, Any], place: str, placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def place_order(item: str) -> None:
        if asyncio.iscoroutinefunction(placed):
            await placed(page, place, item)
        else:
            await asyncio.to_thread(placed, page, place, item)

    before = orders(place)
    await place_order(placed.__name__)
    new = [order for order in orders(place) if order not in before]
    assert len(new) == 1
    assert await jobs_of(page["app"], "invoices") == new

    app, failed = page["app"], []
    for name in ("enqueue", "enqueue_blocking"):
        monkeypatch.setattr(app.transactions, name, fails_after(getattr(app.transactions, name), failed))
    with pytest.raises(ZeroDivisionError):
        await place_order(f"{placed.__name__}, not paid")
    assert failed
    assert orders(place) == [*before, *new]
    assert await jobs_of(app, "invoices") == []


def fails_after(enqueue: Callable[..., Any], failed: list[object]) -> Callable[..., Any]:
    """What goes wrong in the transaction after the job was enqueued."""

    def fail(told: object) -> None:
        failed.append(told)
        raise ZeroDivisionError

    async def enqueue_async(*args: Any) -> None:
        fail(await enqueue(*args))

    def enqueue_blocking(*args: Any) -> None:
        fail(enqueue(*args))

    return enqueue_async if asyncio.iscoroutinefunction(enqueue) else enqueue_blocking


async def test_a_flow_and_a_request_are_part_of_the_transaction(page: dict[str, Any], place: str) -> None:
    async with await psycopg.AsyncConnection.connect(place) as connection:
        await page["order_and_ship"](connection, 17)
    stats = (await page["app"].storage.stats()).queues
    assert stats["prices"].ready == 1
    assert (await page["app"].flows.get("order-17")).state == "running"


async def test_the_file_of_a_store_has_the_orders_too(page: dict[str, Any], tmp_path: Path) -> None:
    await page["shop"].connections.get()

    def order() -> None:
        with contextlib.closing(apsw.Connection(str(tmp_path / "shop.db"))) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
            connection.set_busy_timeout(10_000)
            page["order_with_apsw"](connection, "tea")
            with pytest.raises(ZeroDivisionError), connection:
                page["order_with_apsw"](connection, "coffee")
                raise ZeroDivisionError

    await asyncio.to_thread(order)
    assert await jobs_of(page["shop"], "invoices") == [1]


async def test_the_outbox_is_created_counted_and_relayed(page: dict[str, Any], elsewhere: str) -> None:
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE.text, re.DOTALL)
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        page["upgrade"](connection)
        page["upgrade"](connection)
        await asyncio.to_thread(page["order_for_redis"], connection, "tea for Redis")
        count, written_at = connection.execute(query).fetchone() or (0, 0)
        assert count == 1
        assert abs(written_at - page["jobs"].now()) < 60_000
        assert await page["jobs"].run_until_idle() == 0
        assert connection.execute(query).fetchone() == (0, None)
    assert await jobs_of(page["jobs"], "parcels") == ["tea for Redis"]


def test_the_query_counts_in_sqlite_too() -> None:
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE.text, re.DOTALL)
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(outbox_schema("sqlite"))
        assert connection.execute(query).fetchone() == (0, None)


def test_callers_and_workers_need_no_more_rights_than_the_page_says(elsewhere: str) -> None:
    """A caller has INSERT and SELECT, a worker SELECT and DELETE."""
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        connection.execute(outbox_schema("postgresql").encode())
        connection.execute("CREATE ROLE stranger LOGIN")
        for user, rights in (("caller", "INSERT, SELECT"), ("worker", "SELECT, DELETE")):
            connection.execute(f"CREATE ROLE {user} LOGIN".encode())
            connection.execute(f"GRANT {rights} ON accoda_outbox TO {user}".encode())
    host = elsewhere.partition("@")[2]
    app = App("memory://", outbox=f"postgresql://worker@{host}")
    with psycopg.connect(f"postgresql://caller@{host}") as connection:
        app.sync.enqueue("mail", 1, connection=connection)
    app.sync.run_until_idle()
    assert app.sync.run(app.storage.stats()).queues["mail"].ready == 1
    app.sync.close()
    stranger = App("memory://", outbox=f"postgresql://stranger@{host}")
    with pytest.raises(StorageReadOnly, match="SELECT and DELETE"):
        stranger.sync.run_until_idle()
    stranger.sync.close()


def test_the_table_names_every_kind_of_connection() -> None:
    table = PAGE.text.partition("## Which connection")[2].partition("###")[0]
    for module, name, kind in caller_connection._CLASSES:
        words = {"django": "django.db.connection", "psycopg2": "psycopg2"}.get(kind.library, name)
        library = module.partition(".")[0]
        if name == "PoolConnectionProxy":  # "also from a pool"
            continue
        lines = [line for line in table.splitlines() if library in line.lower() and re.search(rf"[.`]{words}`", line)]
        assert len(lines) == 1, (module, name)
        assert ("`sync`" if kind.blocking else "`await`") in lines[0], lines[0]


async def test_what_the_page_says_of_errors(page: dict[str, Any], place: str) -> None:
    with psycopg.connect(place) as connection:
        with pytest.raises(InvalidInput, match=r"app\.sync"):
            await page["app"].enqueue("mail", connection=connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)
