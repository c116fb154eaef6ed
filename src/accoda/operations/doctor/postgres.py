"""A PostgreSQL database: settings, connections, vacuum, layout. One connection, read-only transactions."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult

import asyncpg  # type: ignore[import-untyped]

from accoda.operations.doctor import reach
from accoda.operations.doctor.findings import Finding, Looked, layout, may_open, note, ok, problem, warning
from accoda.storage.postgres.connection import Place
from accoda.storage.postgres.errors import DRIVER, translate
from accoda.storage.postgres.migrate import HAS_LAYOUT, LAYOUT, OLDEST_SERVER
from accoda.storage.postgres.open import place_of
from accoda.storage.postgres.pooler import CURE, Pooling, pooling_of

LONG = 3600
"""Seconds after which an open transaction blocks vacuum."""
MANY_DEAD_ROWS = 100_000
OLD_AGE = 1_500_000_000
"""Transactions since the last freeze; PostgreSQL stops at two thousand million."""
SHORT_TIMEOUT = 5000

_SETTINGS = """
SELECT name, setting FROM pg_settings WHERE name IN (
    'synchronous_commit', 'fsync', 'full_page_writes', 'max_connections', 'superuser_reserved_connections',
    'autovacuum', 'track_counts', 'default_transaction_read_only', 'statement_timeout', 'synchronous_standby_names'
)
"""
_TABLES = """
SELECT c.relname, s.n_live_tup, s.n_dead_tup, age(c.relfrozenxid) AS age,
    'autovacuum_enabled=false' = ANY (coalesce(c.reloptions, '{}')) AS switched_off
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE n.nspname = $1 AND c.relkind = 'r' ORDER BY c.relname
"""
_LONG_ONES = """
SELECT count(*) AS number, coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8 AS longest
FROM pg_stat_activity WHERE xact_start < clock_timestamp() - make_interval(secs => $1) AND pid <> pg_backend_pid()
    AND datname = current_database() AND backend_type = 'client backend'
"""
_USED = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


async def look(parts: SplitResult, url: str) -> Looked:
    place = place_of(parts)
    try:
        # No prepared statements: there may be a pooler in between, which is one of the things to find out.
        connection = await asyncpg.connect(place.dsn, timeout=place.connect_timeout, statement_cache_size=0)
    except DRIVER as error:
        return Looked(
            [problem("store", f"cannot be reached: {translate(error)}", "is it up? Are URL and login right?")]
        )
    try:
        findings = pooler(await pooling_of(connection, place.dsn, place.connect_timeout))
        async with connection.transaction(readonly=True):
            findings += await _look(connection, place, url)
    except DRIVER as error:
        findings = [problem("store", f"does not answer as expected: {translate(error)}", "see the server's log")]
    finally:
        await connection.close(timeout=5)
    return Looked(findings, may_open(findings))


async def _look(connection: Any, place: Place, url: str) -> list[Finding]:
    settings = {row["name"]: row["setting"] for row in await connection.fetch(_SETTINGS)}
    findings = [_version(connection), *await reach.measure(lambda: connection.fetchval(_CLOCK))]
    findings += [*await _role(connection, settings), *_encoding(connection)]
    findings += durability(settings)
    findings.append(connections(settings, await connection.fetchval(_USED), place.pool))
    findings += [*_vacuum(settings, await connection.fetch(_TABLES, place.schema)), *_timeout(settings)]
    findings += _long_ones(await connection.fetchrow(_LONG_ONES, LONG))
    findings.append(await _layout(connection, place, url))
    return findings


def _version(connection: Any) -> Finding:
    found = connection.get_server_version()
    text = f"PostgreSQL {found.major}.{found.minor}"
    if found.major < OLDEST_SERVER:
        return problem("server", text, f"Accoda needs {OLDEST_SERVER} or newer")
    return ok("server", text)


async def _role(connection: Any, settings: dict[str, str]) -> list[Finding]:
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        advice = "connect to the primary; with several hosts in the URL: ?target_session_attrs=read-write"
        return [problem("role", "the server is a standby, which takes no writes", advice)]
    if settings.get("default_transaction_read_only") == "on":
        advice = "ALTER ROLE CURRENT_USER RESET default_transaction_read_only (or of the database, or the server)"
        return [problem("role", "default_transaction_read_only is on", advice)]
    return []


def _encoding(connection: Any) -> list[Finding]:
    encoding = connection.get_settings().server_encoding
    if encoding.upper() in ("UTF8", "UTF-8", "UNICODE"):
        return []
    return [problem("encoding", f"the database keeps text as {encoding}", "use one of createdb --encoding=UTF8")]


def durability(settings: dict[str, str]) -> list[Finding]:
    """What survives a crash."""
    findings = []
    if settings.get("fsync") == "off":
        advice = "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()"
        findings.append(problem("fsync", "off: a power cut may destroy the whole database", advice))
    if settings.get("full_page_writes") == "off":
        advice = "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()"
        findings.append(problem("full_page_writes", "off: a power cut may leave half-written pages", advice))
    commit = settings.get("synchronous_commit", "on")
    if commit == "off":
        found = "off: a crash loses the last moments of what was acknowledged"
        advice = "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf() (or of the role, or in the URL)"
        findings.append(warning("synchronous_commit", found, advice))
    elif commit in ("local", "remote_write") and settings.get("synchronous_standby_names"):
        found = f"{commit}: a fail-over may lose what was acknowledged"
        advice = "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()"
        findings.append(note("synchronous_commit", found, advice))
    return findings or [ok("durability", "fsync, full_page_writes and synchronous_commit are on")]


def pooler(pooling: Pooling) -> list[Finding]:
    """Whether each connection has a session of its own."""
    if pooling == "transaction":
        return [problem("pooler", "a pooler such as PgBouncer shares sessions between clients (by transaction)", CURE)]
    if pooling == "session":
        advice = "its pool (default_pool_size) must have room for all connections of all workers and producers"
        return [note("pooler", "there is a pooler such as PgBouncer in between, which pools by session", advice)]
    return []


def connections(settings: dict[str, str], used: int, pool: int) -> Finding:
    """Whether another worker can connect."""
    most = int(settings.get("max_connections", "100"))
    free = most - int(settings.get("superuser_reserved_connections", "3")) - used
    ours = pool + 1
    found = f"{used} of {most} in use; a worker uses up to {ours}"
    if free < ours:
        advice = f"ALTER SYSTEM SET max_connections = {2 * most} and restart, or add ?pool=3 to the URL"
        return warning("connections", found, advice)
    return ok("connections", f"{found}, so {free // ours} more can connect")


def _vacuum(settings: dict[str, str], tables: list[Any]) -> list[Finding]:
    findings = []
    for name in ("autovacuum", "track_counts"):
        if settings.get(name) == "off":
            advice = f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()"
            findings.append(warning(name, "off: the tables of a queue grow without end", advice))
    for table in tables:
        name, live, dead = table["relname"], table["n_live_tup"] or 0, table["n_dead_tup"] or 0
        if table["switched_off"]:
            advice = f"ALTER TABLE {name} RESET (autovacuum_enabled)"
            findings.append(warning("autovacuum", f"switched off for {name}", advice))
        if dead > MANY_DEAD_ROWS and dead > 2 * live:
            found = f"{name} has {dead:,} dead rows beside {live:,} live ones"
            findings.append(
                warning("vacuum", found, f"VACUUM {name}; look for long transactions; autovacuum_naptime = 5s")
            )
        if table["age"] > OLD_AGE:
            findings.append(problem("vacuum", f"{name} nears a wraparound ({table['age']:,})", f"VACUUM FREEZE {name}"))
    return findings or ([ok("autovacuum", "on")] if tables else [])


def _timeout(settings: dict[str, str]) -> list[Finding]:
    milliseconds = int(settings.get("statement_timeout", "0"))
    if 0 < milliseconds < SHORT_TIMEOUT:
        advice = "ALTER ROLE CURRENT_USER SET statement_timeout = '30s'"
        return [warning("statement_timeout", f"{milliseconds} ms: a large batch may be cut off", advice)]
    return []


def _long_ones(row: Any) -> list[Finding]:
    if not row["number"]:
        return []
    found = f"{row['number']} open for more than an hour, the longest for {row['longest'] / 3600:.0f} h"
    advice = "they block vacuum: see pg_stat_activity by xact_start; idle_in_transaction_session_timeout"
    return [warning("transactions", found, advice)]


async def _layout(connection: Any, place: Place, url: str) -> Finding:
    if not await connection.fetchval(HAS_LAYOUT, place.schema):
        may = await connection.fetchval("SELECT has_database_privilege(current_database(), 'CREATE')")
        advice = f"accoda migrate {url}" + ("" if may else ", as a role that may: GRANT CREATE ON DATABASE … TO …")
        return problem("layout", f"there is no store in schema {place.schema!r}", advice)
    if not await connection.fetchval("SELECT has_schema_privilege($1, 'USAGE')", place.schema):
        advice = f"GRANT USAGE ON SCHEMA {place.schema} TO this role; see docs/postgres.md"
        return problem("layout", f"this role may not use schema {place.schema!r}", advice)
    version = int(await connection.fetchval(f'SELECT version FROM "{place.schema}".layout'))
    return layout(version, LAYOUT, url)
