"""The outbox: a table in the caller's database. A row has the jobs of one call, and exists if its transaction commits.

Ids are made by the writer and never come again, not even where the database came back from a backup: what is deleted
by its id is what was read under it. They grow with time, so rows are relayed in about the order in which they were
written.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import Struct, msgpack
from msgspec.structs import replace

from accoda.errors import InvalidInput
from accoda.model import NewJob
from accoda.storage.common.caller_connection import Engine, Missing, Statement
from accoda.storage.common.urls import shown_url

CHANNEL = "accoda_outbox"
"""What PostgreSQL's notifications of new rows are called."""
VERSION = b"\x01"
"""The first byte of a row's jobs; what follows is msgpack."""
NAME_ROW = str(UUID(int=0))
"""The id of the row whose `jobs` are the outbox's own name: it sorts before all others."""

_SCHEMAS: dict[Engine, str] = {
    "postgresql": """\
CREATE TABLE IF NOT EXISTS accoda_outbox (
    id uuid PRIMARY KEY,
    jobs bytea NOT NULL,
    written_at bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
);
INSERT INTO accoda_outbox (id, jobs) VALUES ('00000000-0000-0000-0000-000000000000', uuid_send(gen_random_uuid()))
ON CONFLICT DO NOTHING;
""",
    "sqlite": """\
CREATE TABLE IF NOT EXISTS accoda_outbox (
    id TEXT NOT NULL PRIMARY KEY,
    jobs BLOB NOT NULL,
    written_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);
INSERT INTO accoda_outbox (id, jobs) VALUES ('00000000-0000-0000-0000-000000000000', randomblob(16))
ON CONFLICT DO NOTHING;
""",
}
# The notification is sent by the commit. A row is answered, as by every statement of `caller_connection.py`.
_INSERTS: dict[Engine, str] = {
    "postgresql": f"WITH written AS (INSERT INTO accoda_outbox (id, jobs) VALUES (CAST(CAST($1 AS text) AS uuid), "
    f"CAST($2 AS bytea)) RETURNING id) SELECT pg_notify('{CHANNEL}', '') FROM written",
    "sqlite": "INSERT INTO accoda_outbox (id, jobs) VALUES ($1, $2) RETURNING id",
}
_MISSING = {
    engine: Missing(
        "accoda_outbox",
        "the database of this connection has no table accoda_outbox. Workers of the app with the outbox create it; or "
        f'run, in a migration, the SQL that accoda.transactions.outbox_schema("{engine}") gives',
    )
    for engine in _SCHEMAS
}
WHICH_FILE = Statement("SELECT file FROM pragma_database_list WHERE name = 'main'")


class Outbox(Struct, frozen=True):
    """Where an outbox is: what its URL says. `path` is that of an SQLite file."""

    engine: Engine
    url: str
    path: Path | None = None

    def __repr__(self) -> str:
        return f"<outbox {shown_url(self.url)}>"


def read_outbox(url: str) -> Outbox:
    """The outbox behind `postgresql://…` or `sqlite:///…`."""
    scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    if scheme in ("postgresql", "postgres"):
        return Outbox("postgresql", url)
    if scheme == "sqlite":
        from accoda.storage.sqlite.open import file_of

        return Outbox("sqlite", url, file_of(urlsplit(url)))
    advice = "; leave out the driver, it is always asyncpg" if scheme.startswith("postgresql+") else ""
    raise InvalidInput("outbox", f"must be postgresql://… or sqlite:///…, not {shown_url(str(url))!r:.200}{advice}")


def outbox_schema(engine: Engine) -> str:
    """The SQL that makes the table, for a migration of your own: `outbox_schema("postgresql")`, or "sqlite"."""
    if engine not in _SCHEMAS:
        raise InvalidInput("engine", f"must be {' or '.join(get_args(Engine))}, not {engine!r:.60}")
    return _SCHEMAS[engine]


def insert(engine: Engine, id: str, jobs: Sequence[NewJob]) -> Statement:
    """Writes the row."""
    return Statement(_INSERTS[engine], (id, VERSION + msgpack.encode(jobs)), _MISSING[engine])


def read_jobs(data: bytes, age: float) -> list[NewJob]:
    """The jobs of a row that was written `age` seconds ago: a delay counts from then. Raises `ValueError`."""
    if data[:1] != VERSION:
        raise ValueError("a newer Accoda wrote it, or none did")
    return [
        job if job.delay is None else replace(job, delay=max(0.0, job.delay - max(0.0, age)))
        for job in _decoder.decode(data[1:])
    ]


def new_id() -> str:
    """A UUID of version 7: milliseconds, their fraction, and 62 random bits."""
    ms, rest = divmod(time.time_ns(), 1_000_000)
    fraction = rest * 4096 // 1_000_000
    return str(UUID(int=ms << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62)))


_decoder = msgpack.Decoder(list[NewJob])
