"""Creates the store's schema, and refuses one of a newer version. Scripts that upgrade a store come after 1.0."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from accoda.errors import SchemaMismatch, StorageError

LAYOUT = 1
"""The version of the tables and functions that this code works with."""
OLDEST_SERVER = 14
HAS_LAYOUT = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = 'layout'
)
"""
_LOCK = 0x41636364  # "Accd": the class of our advisory locks
# First what the others use: types must be there when a function names them.
SCRIPTS = (
    "schema.sql",
    "verbs/steps.sql",
    "verbs/lanes.sql",
    "verbs/enqueue.sql",
    "verbs/reports.sql",
    "verbs/take.sql",
    "verbs/settle.sql",
    "verbs/extend.sql",
    "verbs/wait.sql",
    "verbs/stats.sql",
    "verbs/documents.sql",
    "verbs/look.sql",
    "verbs/change.sql",
    "verbs/browse.sql",
    "verbs/pause.sql",
    "verbs/purge.sql",
)


async def migrate(connection: Any, schema: str) -> None:
    """Create the store where there is none. The schema's name is known to be harmless."""
    _check_server(connection)
    if await _version(connection, schema) == LAYOUT:
        return
    async with connection.transaction():
        # Of several newcomers one migrates; the others wait here, then see it done. It ends with the transaction.
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, schema)
        if await _version(connection, schema) == LAYOUT:
            return
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        await connection.execute(f'SET LOCAL search_path TO "{schema}", pg_temp')
        await connection.execute("CREATE TABLE layout (version integer NOT NULL)")
        await connection.execute("GRANT SELECT ON layout TO PUBLIC")  # it needs USAGE of the schema as well
        for script in SCRIPTS:
            await connection.execute((files("accoda.storage.postgres") / script).read_text(encoding="utf-8"))
        await connection.execute("INSERT INTO layout VALUES ($1)", LAYOUT)


def _check_server(connection: Any) -> None:
    found: Any = connection.get_server_version()
    if found.major < OLDEST_SERVER:
        raise StorageError(f"this is PostgreSQL {found.major}; Accoda needs {OLDEST_SERVER} or newer")
    encoding = connection.get_settings().server_encoding
    if encoding.upper() not in ("UTF8", "UTF-8", "UNICODE"):
        raise StorageError(f"the database keeps text as {encoding}; use one made with createdb --encoding=UTF8")


async def _version(connection: Any, schema: str) -> int:
    """The layout's version, 0 if there is none; refuses another one than ours."""
    # Asked of the catalog as of any table: what another newcomer committed while we waited for the lock is seen so, and
    # perhaps not by the names that this session has looked up before.
    if not await connection.fetchval(HAS_LAYOUT, schema):
        return 0
    version = int(await connection.fetchval(f'SELECT version FROM "{schema}".layout'))
    if version > LAYOUT:
        raise SchemaMismatch(
            f"the schema {schema} was written by a newer Accoda (layout {version}; this one knows up to "
            f"{LAYOUT}); upgrade with: pip install --upgrade accoda"
        )
    return version
