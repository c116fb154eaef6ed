"""Connections of every driver, as a caller has them, with one face: `insert`, `enqueue`, `commit`, …"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from accoda import App, Enqueued

T = TypeVar("T")


class Caller(Protocol):
    """A caller with an open connection, and a table `orders` of its own. Nothing is committed before `commit`."""

    connection: Any

    async def execute(self, sql: str) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...
    async def enqueue(self, app: App, queue: str, payload: object = None, **options: Any) -> Enqueued[Any]: ...
    async def enqueue_many(
        self, app: App, queue: str, payloads: Iterable[object], **options: Any
    ) -> Sequence[Enqueued[Any]]: ...


Opened = tuple[Any, Callable[[], object]]
"""A connection, and what closes it."""


class Blocking:
    """A caller whose calls block, in a thread of its own without an event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    async def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args, **options))

    async def open(self, opened: Callable[[], Opened]) -> Self:
        self.connection, self._close = await self.run(opened)
        return self

    async def execute(self, sql: str) -> None:
        await self.run(self._execute, sql)

    def _execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    async def commit(self) -> None:
        await self.run(lambda: self.connection.commit())

    async def rollback(self) -> None:
        await self.run(lambda: self.connection.rollback())

    async def close(self) -> None:
        await self.run(self._close)  # twice is no harm

    def __del__(self) -> None:
        self._thread.shutdown(wait=False)

    async def enqueue(self, app: App, queue: str, payload: object = None, **options: Any) -> Enqueued[Any]:
        return await self.run(app.sync.enqueue, queue, payload, connection=self.connection, **options)

    async def enqueue_many(
        self, app: App, queue: str, payloads: Iterable[object], **options: Any
    ) -> Sequence[Enqueued[Any]]:
        return await self.run(app.sync.enqueue_many, queue, payloads, connection=self.connection, **options)


class Sqlite(Blocking):
    def _execute(self, sql: str) -> None:
        self.connection.execute(sql)


class Apsw(Sqlite):
    """apsw begins no transaction by itself."""

    def _execute(self, sql: str) -> None:
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute(sql)

    async def commit(self) -> None:
        await self.run(lambda: self.connection.execute("COMMIT"))

    async def rollback(self) -> None:
        await self.run(lambda: self.connection.execute("ROLLBACK"))


class SqlAlchemy(Blocking):
    def _execute(self, sql: str) -> None:
        from sqlalchemy import text

        self.connection.execute(text(sql))


class Async:
    """A caller whose connection is async."""

    def __init__(self, connection: Any, close: Callable[[], Awaitable[None]]) -> None:
        self.connection = connection
        self._close = close

    async def execute(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self._close()

    async def enqueue(self, app: App, queue: str, payload: object = None, **options: Any) -> Enqueued[Any]:
        return await app.enqueue(queue, payload, connection=self.connection, **options)

    async def enqueue_many(
        self, app: App, queue: str, payloads: Iterable[object], **options: Any
    ) -> Sequence[Enqueued[Any]]:
        return await app.enqueue_many(queue, payloads, connection=self.connection, **options)


class AsyncSqlAlchemy(Async):
    async def execute(self, sql: str) -> None:
        from sqlalchemy import text

        await self.connection.execute(text(sql))


class Asyncpg(Async):
    """asyncpg begins no transaction by itself."""

    async def execute(self, sql: str) -> None:
        if not self.connection.is_in_transaction():
            await self.connection.execute("BEGIN")
        await self.connection.execute(sql)

    async def commit(self) -> None:
        await self.connection.execute("COMMIT")

    async def rollback(self) -> None:
        await self.connection.execute("ROLLBACK")


# -- how each is opened, by a postgresql:// or sqlite:/// URL


async def asyncpg(url: str) -> Caller:
    import asyncpg

    connection = await asyncpg.connect(url)
    return Asyncpg(connection, connection.close)


async def psycopg_async(url: str) -> Caller:
    import psycopg

    connection = await psycopg.AsyncConnection.connect(url)
    return Async(connection, connection.close)


async def psycopg(url: str) -> Caller:
    import psycopg

    def opened() -> Opened:
        connection = psycopg.connect(url)
        return connection, connection.close

    return await Blocking().open(opened)


async def psycopg2(url: str) -> Caller:
    import psycopg2

    def opened() -> Opened:
        connection = psycopg2.connect(url)
        return connection, connection.close

    return await Blocking().open(opened)


def django_connections(url: str) -> Any:
    """Django's handler of connections, whose default database is at the URL."""
    from urllib.parse import urlsplit

    import django
    from django.apps import apps
    from django.conf import settings
    from django.db.utils import ConnectionHandler

    if not settings.configured and not os.environ.get("DJANGO_SETTINGS_MODULE"):
        settings.configure()
    if not apps.ready:
        django.setup()
    parts = urlsplit(url)
    database: dict[str, object] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    if parts.scheme == "sqlite":
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    return ConnectionHandler({"default": database})


async def django_connection(url: str) -> Caller:
    connections = django_connections(url)

    def opened() -> Opened:
        connection = connections["default"]
        connection.set_autocommit(False)
        return connection, connection.close

    return await Blocking().open(opened)


def _engine_url(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


def sqlalchemy_connection(driver: str) -> Callable[[str], Awaitable[Caller]]:
    async def open(url: str) -> Caller:
        from sqlalchemy import create_engine

        def opened() -> Opened:
            engine = create_engine(_engine_url(url, driver))
            connection = engine.connect()
            return connection, lambda: (connection.close(), engine.dispose())

        return await SqlAlchemy().open(opened)

    return open


def sqlalchemy_session(driver: str) -> Callable[[str], Awaitable[Caller]]:
    async def open(url: str) -> Caller:
        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        def opened() -> Opened:
            engine = create_engine(_engine_url(url, driver))
            session = Session(engine)
            return session, lambda: (session.close(), engine.dispose())

        return await SqlAlchemy().open(opened)

    return open


def sqlalchemy_async_connection(driver: str) -> Callable[[str], Awaitable[Caller]]:
    async def open(url: str) -> Caller:
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(_engine_url(url, driver))
        connection = await engine.connect()

        async def close() -> None:
            await connection.close()
            await engine.dispose()

        return AsyncSqlAlchemy(connection, close)

    return open


def sqlalchemy_async_session(driver: str) -> Callable[[str], Awaitable[Caller]]:
    async def open(url: str) -> Caller:
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        engine = create_async_engine(_engine_url(url, driver))
        session = AsyncSession(engine)

        async def close() -> None:
            await session.close()
            await engine.dispose()

        return AsyncSqlAlchemy(session, close)

    return open


async def sqlite3(url: str) -> Caller:
    import sqlite3

    def opened() -> Opened:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        return connection, connection.close

    return await Sqlite().open(opened)


async def aiosqlite(url: str) -> Caller:
    import aiosqlite

    connection = await aiosqlite.connect(url.removeprefix("sqlite:///"))
    return Async(connection, connection.close)


async def apsw(url: str) -> Caller:
    import apsw

    def opened() -> Opened:
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.set_busy_timeout(10_000)
        return connection, connection.close

    return await Apsw().open(opened)


Opener = Callable[[str], Awaitable[Caller]]

POSTGRES: dict[str, Opener] = {
    "asyncpg": asyncpg,
    "psycopg-async": psycopg_async,
    "psycopg": psycopg,
    "psycopg2": psycopg2,
    "django": django_connection,
    "sqlalchemy-psycopg": sqlalchemy_connection("psycopg"),
    "sqlalchemy-psycopg2": sqlalchemy_connection("psycopg2"),
    "sqlalchemy-session": sqlalchemy_session("psycopg"),
    "sqlalchemy-asyncpg": sqlalchemy_async_connection("asyncpg"),
    "sqlalchemy-psycopg-async": sqlalchemy_async_connection("psycopg"),
    "sqlalchemy-async-session": sqlalchemy_async_session("asyncpg"),
}
SQLITE: dict[str, Opener] = {
    "sqlite3": sqlite3,
    "aiosqlite": aiosqlite,
    "django": django_connection,
    "sqlalchemy": sqlalchemy_connection("pysqlite"),
    "sqlalchemy-session": sqlalchemy_session("pysqlite"),
    "sqlalchemy-async-session": sqlalchemy_async_session("aiosqlite"),
}
