"""Brings a schema to the layout that this version knows. Any number of processes may do so at the same moment."""

from __future__ import annotations

from typing import Any

from accoda.errors import SchemaMismatch, StorageError
from accoda.storage.postgres.connector import Connection
from accoda.storage.scripts import load_migrations

MIGRATIONS = load_migrations("accoda.storage.postgres")
OLDEST_SERVER = 14
_LOCK = 0x41636364  # "Accd": the class of our advisory locks
_HAS_LAYOUT = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = 'layout'
)
"""


async def migrate(connection: Connection, schema: str) -> None:
    """Create or upgrade the store. The schema's name is known to be harmless."""
    await _check_server(connection)
    if await _version(connection, schema) == len(MIGRATIONS):
        return
    async with connection.transaction():
        # Of several newcomers one migrates; the others wait here, then see it done. It ends with the transaction.
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, schema)
        version = await _version(connection, schema)
        if version == len(MIGRATIONS):
            return
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        await connection.execute(f'SET LOCAL search_path TO "{schema}", pg_temp')
        if not version:
            await connection.execute("CREATE TABLE layout (version integer NOT NULL)")
            await connection.execute("INSERT INTO layout VALUES (0)")
            await connection.execute("GRANT SELECT ON layout TO PUBLIC")  # of those who may use the schema at all
        for script in MIGRATIONS[version:]:
            await connection.execute(script)
        await connection.execute("UPDATE layout SET version = $1", len(MIGRATIONS))


async def _check_server(connection: Connection) -> None:
    found: Any = connection.get_server_version()
    if found.major < OLDEST_SERVER:
        raise StorageError(f"this is PostgreSQL {found.major}; Accoda needs {OLDEST_SERVER} or newer")
    encoding = connection.get_settings().server_encoding
    if encoding.upper() not in ("UTF8", "UTF-8", "UNICODE"):
        raise StorageError(f"the database keeps text as {encoding}; use one made with createdb --encoding=UTF8")


async def _version(connection: Connection, schema: str) -> int:
    """The layout's version, 0 if there is none; refuses a newer one than we know."""
    # Asked of the catalog as of any table: what another newcomer committed while we waited for the lock is seen so, and
    # perhaps not by the names that this session has looked up before.
    if not await connection.fetchval(_HAS_LAYOUT, schema):
        return 0
    version = int(await connection.fetchval(f'SELECT version FROM "{schema}".layout'))
    if version > len(MIGRATIONS):
        raise SchemaMismatch(
            f"the schema {schema} was written by a newer Accoda (layout {version}; this one knows up to "
            f"{len(MIGRATIONS)}); upgrade with: pip install --upgrade accoda"
        )
    return version
