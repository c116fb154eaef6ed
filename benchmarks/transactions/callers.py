"""A transaction with one order, as each driver writes it: alone, with a row of a table of one's own, or with a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Literal

import psycopg

from accoda import App
from accoda.transactions import outbox_schema

Variant = Literal["order", "row", "job"]
VARIANTS: tuple[Variant, ...] = ("order", "row", "job")
Transact = Callable[[Variant], None]
Sample = Callable[[Variant, int], Awaitable[float]]
"""Seconds that so many transactions take, one after the other."""

QUEUE = "emails"
PAYLOAD = {"to": "anna@example.com", "subject": "Hello", "user": 42}
ITEM = "tea"
POSTGRES_TABLES = """
CREATE TABLE orders (id bigserial PRIMARY KEY, item text NOT NULL);
CREATE TABLE emails (id bigserial PRIMARY KEY, queue text NOT NULL, payload jsonb NOT NULL,
    start_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON emails (queue, start_at, id);
"""
SQLITE_TABLES = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);
CREATE TABLE emails (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, payload TEXT NOT NULL,
    start_at REAL NOT NULL DEFAULT (julianday('now')));
CREATE INDEX emails_next ON emails (queue, start_at, id);
"""
ORDER = "INSERT INTO orders (item) VALUES ({})"
ROW = "INSERT INTO emails (queue, payload) VALUES ({}, {})"


def row() -> tuple[str, str]:
    return QUEUE, json.dumps(PAYLOAD)


@contextmanager
def by_psycopg(url: str, app: App) -> Iterator[Transact]:
    order, mail = ORDER.format("%s").encode(), ROW.format("%s", "%s").encode()
    with psycopg.connect(url, autocommit=True) as connection:

        def transact(variant: Variant) -> None:
            with connection.transaction():
                connection.execute(order, (ITEM,))
                if variant == "row":
                    connection.execute(mail, row())
                elif variant == "job":
                    app.sync.enqueue(QUEUE, PAYLOAD, connection=connection)

        yield transact


@contextmanager
def by_psycopg2(url: str, app: App) -> Iterator[Transact]:
    import psycopg2

    order, mail = ORDER.format("%s"), ROW.format("%s", "%s")
    with contextlib.closing(psycopg2.connect(url)) as connection:

        def transact(variant: Variant) -> None:
            with connection, connection.cursor() as cursor:
                cursor.execute(order, (ITEM,))
                if variant == "row":
                    cursor.execute(mail, row())
                elif variant == "job":
                    app.sync.enqueue(QUEUE, PAYLOAD, connection=connection)

        yield transact


@contextmanager
def by_sqlalchemy(url: str, app: App) -> Iterator[Transact]:
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session

    order, mail = text(ORDER.format(":item")), text(ROW.format(":queue", ":payload"))
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))

    def transact(variant: Variant) -> None:
        with Session(engine) as session, session.begin():
            session.execute(order, {"item": ITEM})
            if variant == "row":
                session.execute(mail, dict(zip(("queue", "payload"), row(), strict=True)))
            elif variant == "job":
                app.sync.enqueue(QUEUE, PAYLOAD, connection=session)

    try:
        yield transact
    finally:
        engine.dispose()


@contextmanager
def by_apsw(url: str, app: App) -> Iterator[Transact]:
    import apsw

    order, mail = ORDER.format("?"), ROW.format("?", "?")
    connection = apsw.Connection(url.removeprefix("sqlite:///"))

    def transact(variant: Variant) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(order, (ITEM,))
        if variant == "row":
            connection.execute(mail, row())
        elif variant == "job":
            app.sync.enqueue(QUEUE, PAYLOAD, connection=connection)
        connection.execute("COMMIT")

    try:
        yield transact
    finally:
        connection.close()


@contextmanager
def by_sqlite3(url: str, app: App) -> Iterator[Transact]:
    order, mail = ORDER.format("?"), ROW.format("?", "?")
    file = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(file, check_same_thread=False)) as connection:

        def transact(variant: Variant) -> None:
            with connection:
                connection.execute(order, (ITEM,))
                if variant == "row":
                    connection.execute(mail, row())
                elif variant == "job":
                    app.sync.enqueue(QUEUE, PAYLOAD, connection=connection)

        yield transact


@asynccontextmanager
async def by_asyncpg(url: str, app: App) -> AsyncIterator[Sample]:
    import asyncpg

    order, mail = ORDER.format("$1"), ROW.format("$1", "$2")
    connection = await asyncpg.connect(url)

    async def sample(variant: Variant, count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            async with connection.transaction():
                await connection.execute(order, ITEM)
                if variant == "row":
                    await connection.execute(mail, *row())
                elif variant == "job":
                    await app.enqueue(QUEUE, PAYLOAD, connection=connection)
        return time.perf_counter() - begun

    try:
        yield sample
    finally:
        await connection.close()


def blocking(
    opened: Callable[[str, App], contextlib.AbstractContextManager[Transact]],
) -> Callable[[str, App], AbstractAsyncContextManager[Sample]]:
    """As the async one: its samples are taken in a thread without an event loop."""

    @asynccontextmanager
    async def open(url: str, app: App) -> AsyncIterator[Sample]:
        with opened(url, app) as transact:

            def take(variant: Variant, count: int) -> float:
                begun = time.perf_counter()
                for _ in range(count):
                    transact(variant)
                return time.perf_counter() - begun

            async def sample(variant: Variant, count: int) -> float:
                return await asyncio.to_thread(take, variant, count)

            yield sample
            await asyncio.to_thread(app.sync.close)

    return open


Opener = Callable[[str, App], AbstractAsyncContextManager[Sample]]
IN_POSTGRES, IN_SQLITE = "PostgreSQL", "SQLite"
BY_POSTGRES, BY_SQLITE = "outbox in PostgreSQL", "outbox in SQLite"
CASES: tuple[tuple[str, str, Opener], ...] = (
    ("asyncpg", IN_POSTGRES, by_asyncpg),
    ("psycopg", IN_POSTGRES, blocking(by_psycopg)),
    ("psycopg2", IN_POSTGRES, blocking(by_psycopg2)),
    ("SQLAlchemy session, psycopg", IN_POSTGRES, blocking(by_sqlalchemy)),
    ("apsw", IN_SQLITE, blocking(by_apsw)),
    ("psycopg", BY_POSTGRES, blocking(by_psycopg)),
    ("sqlite3", BY_SQLITE, blocking(by_sqlite3)),
)
"""The driver, where its jobs go, and how it is opened."""


@asynccontextmanager
async def opened_app(goes: str, url: str) -> AsyncIterator[App]:
    """The app, and the tables of the caller. No relay runs: what it costs later is not the caller's."""
    if goes in (BY_POSTGRES, BY_SQLITE):
        app = App("memory://", outbox=url)
    else:
        app = App(url)
        await app.connections.get()  # makes the store
    make_tables(goes, url)
    yield app
    await app.close()


def make_tables(goes: str, url: str) -> None:
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(POSTGRES_TABLES.encode())
            connection.execute(outbox_schema("postgresql").encode())
        return
    if goes == IN_SQLITE:  # the store's file: never with another copy of the library
        import apsw

        with contextlib.closing(apsw.Connection(url.removeprefix("sqlite:///"))) as store:
            store.execute(SQLITE_TABLES)
        return
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as own:
        own.executescript(f"PRAGMA journal_mode = wal; {SQLITE_TABLES} {outbox_schema('sqlite')}")
