"""Finds out whether there is a connection pooler such as PgBouncer in front of the server, and how it pools.

In session mode a client has a server session of its own. In transaction mode it may get another one for each
transaction, which Accoda cannot use: its settings and its LISTEN would stay behind in sessions that other clients use,
and a prepared statement would be missing, or be another client's of the same name.
"""

from __future__ import annotations

import asyncio
import io
from typing import Any, Literal

import asyncpg  # type: ignore[import-untyped]

from accoda.errors import StorageUnavailable

Pooling = Literal["none", "session", "transaction"]
ROUNDS = 3
CURE = "set pool_mode = session for this database in PgBouncer, or use a URL that leads to the server itself"
SHARED = (
    "a connection pooler such as PgBouncer in front of PostgreSQL pools by transaction, but each connection of Accoda "
    f"needs a session of its own, for prepared statements, settings and LISTEN: {CURE}"
)
NO_SECOND = (
    "the connection pooler in front of PostgreSQL had no second connection for this user in time; raise "
    "default_pool_size in PgBouncer: each process of Accoda uses up to `pool` + 1 connections"
)


async def pooling_of(connection: Any, dsn: str, timeout: float) -> Pooling:
    """How a new connection is pooled. It sets nothing and prepares nothing: the session may be another client's.

    A pooler makes up the process number that it tells a client, to route cancellations. In session mode a client that
    has sent a statement keeps its server process. In transaction mode the process is free after each statement, and one
    of these happens: the pooler gives it to our second client, because it was freed last; it gives our first client
    another one, because it uses them in turn; or another client is faster. The last is why there are several rounds.
    What they do not show comes up as an error about a prepared statement, which errors.py translates.
    """
    async with asyncio.timeout(timeout):
        home = await _backend(connection)
    if home == connection.get_server_pid():
        return "none"
    other = await asyncpg.connect(dsn, timeout=timeout)
    try:
        async with asyncio.timeout(timeout):
            return await _compare(connection, home, other)
    except TimeoutError as error:
        raise StorageUnavailable(NO_SECOND) from error
    finally:
        other.terminate()


async def _compare(connection: Any, home: int, other: Any) -> Pooling:
    for _ in range(ROUNDS):
        if await _backend(connection) != home:
            return "transaction"
        try:
            await other.execute("BEGIN")
        except asyncpg.PostgresError as error:
            if "statement pooling" in str(error):  # even less of a session
                return "transaction"
            raise
        is_shared = await _backend(other) == home or await _backend(connection) != home
        await other.execute("ROLLBACK")  # a pooler closes a session that is left in a transaction
        if is_shared:
            return "transaction"
    return "session"


async def _backend(connection: Any) -> int:
    """The server process that runs this statement. With COPY asyncpg needs no prepared statement to get an answer."""
    answer = io.BytesIO()
    await connection.copy_from_query("SELECT pg_backend_pid()", output=answer)
    return int(answer.getvalue())
