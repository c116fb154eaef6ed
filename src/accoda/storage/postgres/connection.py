"""Makes connections to the server of a store, with the settings that its functions count on."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import asyncpg  # type: ignore[import-untyped]

from accoda.errors import StorageError
from accoda.storage.postgres.pooler import SHARED, pooling_of

# What the functions count on, whatever the database's defaults. Every statement walks an index: the tables grow from
# nothing to millions and back faster than statistics follow, and a plan made for an empty table (scan it all) would be
# the end of a full one.
SESSION = {
    "default_transaction_isolation": "read committed",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
# Set after connecting, not in the start-up packet: there PgBouncer refuses parameters that it does not know, unless it
# is told to ignore them, and then they do not hold.
_SET_SESSION = "; ".join(f"SET {name} = '{value}'" for name, value in SESSION.items())


class Place(NamedTuple):
    """Where a store is: what its URL says."""

    dsn: str
    schema: str
    pool: int
    connect_timeout: float


async def connect(place: Place, *, is_first: bool = False, **options: Any) -> Any:
    """A connection. The first one finds out whether sessions are shared, before anything is set in one."""
    connection = await asyncpg.connect(place.dsn, **{"timeout": place.connect_timeout, **options})
    try:
        if is_first and await pooling_of(connection, place.dsn, place.connect_timeout) == "transaction":
            raise StorageError(SHARED)
        async with asyncio.timeout(place.connect_timeout):
            await connection.execute(_SET_SESSION)
    except BaseException:
        connection.terminate()
        raise
    return connection
