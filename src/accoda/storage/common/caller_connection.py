"""Runs our statements on a caller's own connection, so that they take part in the caller's transaction.

Nothing is imported for it: a library whose connection is given has been imported already. Errors are the driver's own,
because they concern the caller's transaction; where one has a known cause, a note says what to do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from accoda.errors import InvalidInput

Engine = Literal["postgresql", "sqlite"]
Row = Sequence[Any]

FAILED_TRANSACTION = "25P02"
UNDEFINED = frozenset({"42883", "42P01", "3F000"})  # a function, a table, a schema
NO_TABLE = "no such table"  # the same in SQLite
ACCEPTED = (
    "a connection of asyncpg, psycopg, psycopg2, sqlite3, aiosqlite or apsw; a Connection or Session of SQLAlchemy, "
    "blocking or async; or django.db.connection"
)


class Missing(NamedTuple):
    """What a statement needs in the caller's database, by its name, and what to do where it is not there."""

    name: str
    advice: str


class Statement(NamedTuple):
    """One row is its answer. The places are $1, $2, … in that order, each of them once."""

    query: str
    args: Sequence[Any] = ()
    missing: Missing | None = None


class Kind(NamedTuple):
    """What a connection is: its library, and whether its calls block."""

    library: str
    blocking: bool


class Caller(Struct, frozen=True):
    """A connection that a caller gave."""

    connection: Any
    library: str
    engine: Engine
    blocking: bool


_CLASSES = (
    ("asyncpg", "Connection", Kind("asyncpg", False)),
    ("asyncpg.pool", "PoolConnectionProxy", Kind("asyncpg", False)),
    ("psycopg", "AsyncConnection", Kind("psycopg", False)),
    ("psycopg", "Connection", Kind("psycopg", True)),
    ("psycopg2.extensions", "connection", Kind("psycopg2", True)),
    ("sqlalchemy", "Connection", Kind("sqlalchemy", True)),
    ("sqlalchemy.orm", "Session", Kind("sqlalchemy", True)),
    ("sqlalchemy.orm", "scoped_session", Kind("sqlalchemy", True)),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", Kind("sqlalchemy", False)),
    ("sqlalchemy.ext.asyncio", "AsyncSession", Kind("sqlalchemy", False)),
    ("sqlalchemy.ext.asyncio", "async_scoped_session", Kind("sqlalchemy", False)),
    ("django.db.backends.base.base", "BaseDatabaseWrapper", Kind("django", True)),
    ("django.utils.connection", "ConnectionProxy", Kind("django", True)),
    ("sqlite3", "Connection", Kind("sqlite3", True)),
    ("aiosqlite", "Connection", Kind("aiosqlite", False)),
    ("apsw", "Connection", Kind("apsw", True)),
)
_PLACE = re.compile(r"\$(\d+)")


def recognize(connection: object) -> Caller:
    """What kind of connection this is. Raises `InvalidInput` if it is none that can be used."""
    cls: type = type(connection)
    kind = _kind_of(cls)
    if kind is None:
        raise InvalidInput("connection", f"must be {ACCEPTED}; not {cls.__module__}.{cls.__qualname__}")
    engine = _engine_of(connection, kind.library)
    if engine not in ("postgresql", "sqlite"):
        raise InvalidInput("connection", f"must be one to PostgreSQL or SQLite, not to {engine}")
    return Caller(connection, kind.library, engine, kind.blocking)


@cache
def _kind_of(cls: type) -> Kind | None:
    for module, name, kind in _CLASSES:
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and issubclass(cls, known):
            return kind
    return None


def _engine_of(connection: Any, library: str) -> Any:
    match library:
        case "sqlalchemy":
            return (connection if hasattr(connection, "dialect") else _bind_of(connection)).dialect.name
        case "django":
            return connection.vendor
        case "sqlite3" | "aiosqlite" | "apsw":
            return "sqlite"
    return "postgresql"


def _bind_of(session: Any) -> Any:
    from sqlalchemy.exc import UnboundExecutionError

    try:
        return session.get_bind()
    except UnboundExecutionError as error:
        problem = (
            "this session has no database for all of its tables; give the connection of those that you write: "
            'session.connection(bind_arguments={"mapper": …})'
        )
        raise InvalidInput("connection", problem) from error


def fetch(caller: Caller, statement: Statement) -> Row:
    """Run a statement on a connection whose calls block, in this thread."""
    with _explained(statement):
        return _BLOCKING[caller.library](caller.connection, statement)


async def fetch_async(caller: Caller, statement: Statement) -> Row:
    """Run a statement on an async connection."""
    with _explained(statement):
        return await _ASYNC[caller.library](caller.connection, statement)


# -- by library


async def _in_asyncpg(connection: Any, statement: Statement) -> Row:
    return await connection.fetchrow(statement.query, *statement.args)  # type: ignore[no-any-return]


async def _in_psycopg_async(connection: Any, statement: Statement) -> Row:
    from psycopg import AsyncRawCursor
    from psycopg.rows import tuple_row

    async with AsyncRawCursor(connection, row_factory=tuple_row) as cursor:  # it knows $1, whatever the caller's does
        await cursor.execute(statement.query.encode(), statement.args)
        return await cursor.fetchone()  # type: ignore[return-value]


def _in_psycopg(connection: Any, statement: Statement) -> Row:
    from psycopg import RawCursor
    from psycopg.rows import tuple_row

    with RawCursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statement.query.encode(), statement.args)
        return cursor.fetchone()  # type: ignore[return-value]


def _in_psycopg2(connection: Any, statement: Statement) -> Row:
    from psycopg2.extensions import cursor as plain_cursor

    with connection.cursor(cursor_factory=plain_cursor) as cursor:  # its rows are tuples, whatever the caller's are
        cursor.execute(_with_places("%s", statement.query), statement.args)
        return cursor.fetchone()  # type: ignore[no-any-return]


def _in_django(connection: Any, statement: Statement) -> Row:
    with connection.cursor() as cursor:
        cursor.execute(_with_places("%s", statement.query), statement.args)
        return cursor.fetchone()  # type: ignore[no-any-return]


# Through SQLAlchemy and not the driver below it: it begins its transaction with its own first statement.


def _in_sqlalchemy(connection: Any, statement: Statement) -> Row:
    return tuple(connection.execute(*_named(statement)).one())


async def _in_sqlalchemy_async(connection: Any, statement: Statement) -> Row:
    return tuple((await connection.execute(*_named(statement))).one())


def _named(statement: Statement) -> tuple[Any, dict[str, Any]]:
    return _text(statement.query), {f"p{n}": value for n, value in enumerate(statement.args, 1)}


@cache
def _text(query: str) -> Any:
    from sqlalchemy import text

    return text(_with_places(r":p\1", query))


@cache
def _with_places(place: str, query: str) -> str:
    """A query with the places of another library."""
    return _PLACE.sub(place, query)


def _in_sqlite(connection: Any, statement: Statement) -> Row:
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        return cursor.execute(_with_places("?", statement.query), statement.args).fetchone()  # type: ignore[no-any-return]
    finally:
        cursor.close()


async def _in_aiosqlite(connection: Any, statement: Statement) -> Row:
    async with connection.execute(_with_places("?", statement.query), statement.args) as cursor:
        return tuple(await cursor.fetchone())


_BLOCKING: dict[str, Callable[[Any, Statement], Row]] = {
    "psycopg": _in_psycopg,
    "psycopg2": _in_psycopg2,
    "sqlalchemy": _in_sqlalchemy,
    "django": _in_django,
    "sqlite3": _in_sqlite,
}
_ASYNC: dict[str, Callable[[Any, Statement], Awaitable[Row]]] = {
    "asyncpg": _in_asyncpg,
    "psycopg": _in_psycopg_async,
    "sqlalchemy": _in_sqlalchemy_async,
    "aiosqlite": _in_aiosqlite,
}


# -- errors


@contextmanager
def _explained(statement: Statement) -> Iterator[None]:
    missing = statement.missing
    try:
        yield
    except Exception as error:
        state = sqlstate(error)
        if state == FAILED_TRANSACTION:
            error.add_note("accoda: a statement before this one failed; roll the transaction back and repeat all of it")
        elif missing is not None and missing.name in str(error) and (state in UNDEFINED or NO_TABLE in str(error)):
            # By its name: a session of SQLAlchemy flushes first, and the caller's own tables may be missing, too.
            error.add_note(f"accoda: {missing.advice}")
        raise


def sqlstate(error: BaseException | None) -> str | None:
    """The code that PostgreSQL gave an error, whichever libraries have wrapped it."""
    while error is not None:
        found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if isinstance(found, str):
            return found
        error = getattr(error, "orig", None) or error.__cause__
    return None
