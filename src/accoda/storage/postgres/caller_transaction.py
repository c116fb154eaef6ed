"""Runs our statement on a caller's own connection, so that it takes part in the caller's transaction.

asyncpg       a Connection, or what a Pool gives
psycopg       an AsyncConnection
SQLAlchemy    an AsyncConnection or AsyncSession, over asyncpg or psycopg

Errors are the driver's own here: the transaction is the caller's, and so is the way to deal with its failure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from accoda.errors import InvalidInput

_PLACE = re.compile(r"\$(\d+)")
_TYPES = (
    "bigint",
    *(
        "text[]",
        "bytea[]",
        "float8[]",
        "bigint[]",
        "bigint[]",
        "bigint[]",
        "float8[]",
        "text[]",
        "smallint[]",
        "bytea[]",
        "text[]",
        "text[]",
    ),
)
_ARGUMENTS = ", ".join(f"CAST(${place} AS {type})" for place, type in enumerate(_TYPES, 1))


async def enqueue_in(connection: Any, schema: str, at: int | None, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
    """Call `enqueue_apart` of verbs/enqueue.sql, with the jobs as its type `new_job` has them; its answer."""
    columns = [list(column) for column in zip(*jobs, strict=True)] or [[] for _ in _TYPES[1:]]
    query = f'SELECT * FROM "{schema}".enqueue_apart({_ARGUMENTS})'
    return await _run_in(connection, query, (at, *columns))


async def _run_in(connection: Any, query: str, args: Sequence[Any]) -> Sequence[Any]:
    """The only row of a statement whose places are $1, $2, …"""
    library = type(connection).__module__.partition(".")[0]
    if library == "asyncpg":
        return await connection.fetchrow(query, *args)  # type: ignore[no-any-return]
    if library == "psycopg" and hasattr(connection, "cursor"):
        return await _in_psycopg(connection, query, args)
    if library == "sqlalchemy" and hasattr(connection, "execute"):
        return await _in_sqlalchemy(connection, query, args)
    raise InvalidInput(
        "connection",
        "must be an asyncpg connection, a psycopg AsyncConnection, or a SQLAlchemy AsyncConnection or AsyncSession, "
        f"not {type(connection).__module__}.{type(connection).__qualname__}",
    )


async def _in_psycopg(connection: Any, query: str, args: Sequence[Any]) -> Sequence[Any]:
    from psycopg import AsyncConnection, AsyncRawCursor
    from psycopg.rows import tuple_row

    if not isinstance(connection, AsyncConnection):
        raise InvalidInput("connection", "must be a psycopg AsyncConnection; a blocking one would stop the event loop")
    async with AsyncRawCursor(connection, row_factory=tuple_row) as cursor:  # one that knows $1, whatever the caller's
        await cursor.execute(query.encode(), args)
        row = await cursor.fetchone()
    assert row is not None
    return row


async def _in_sqlalchemy(connection: Any, query: str, args: Sequence[Any]) -> Sequence[Any]:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    if not isinstance(connection, (AsyncConnection, AsyncSession)):
        raise InvalidInput(
            "connection", "must be an AsyncConnection or AsyncSession; a blocking one would stop the loop"
        )
    # Through SQLAlchemy and not the driver below it: it begins its transaction with its own first statement.
    named = text(_PLACE.sub(r":p\1", query))
    result = await connection.execute(named, {f"p{place}": value for place, value in enumerate(args, 1)})
    return tuple(result.one())
