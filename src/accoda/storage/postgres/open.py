"""From a `postgresql://` URL to a storage."""

from __future__ import annotations

import re
import socket
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

import asyncpg  # type: ignore[import-untyped]

from accoda.clock import Clock
from accoda.errors import InvalidInput
from accoda.storage.postgres.arrays import teach
from accoda.storage.postgres.client import Client
from accoda.storage.postgres.connector import Connection, Connector, PromptConnection, terminate
from accoda.storage.postgres.errors import DRIVER, translate
from accoda.storage.postgres.migrate import migrate
from accoda.storage.postgres.storage import PostgresStorage

# What libpq calls by the same names; asyncpg understands it.
LIBPQ = frozenset(
    {
        "host",
        "port",
        "dbname",
        "user",
        "password",
        "passfile",
        "sslmode",
        "sslcert",
        "sslkey",
        "sslrootcert",
        "sslcrl",
        "sslpassword",
        "sslnegotiation",
        "ssl_min_protocol_version",
        "ssl_max_protocol_version",
        "target_session_attrs",
        "krbsrvname",
        "gsslib",
        "service",
        "servicefile",
        "application_name",
        "options",
    }
)
OWN = ("connect_timeout", "pool", "schema")

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
SESSION = {
    "default_transaction_isolation": "read committed",  # what the functions count on, whatever the database's default
    # Every statement walks an index. The tables grow from nothing to millions and back faster than statistics follow,
    # and a plan made for an empty table (scan it all) would be the end of a full one.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}


class Place(NamedTuple):
    """What a URL says."""

    dsn: str
    schema: str
    pool: int
    connect_timeout: float


async def open_postgres(parts: SplitResult, clock: Clock | None) -> PostgresStorage:
    place = place_of(parts)

    async def connect() -> Connection:
        made = await asyncpg.connect(
            place.dsn,
            timeout=place.connect_timeout,
            server_settings=SESSION,
            connection_class=PromptConnection,
            max_cached_statement_lifetime=0,  # there are few, each for ever: to prepare one again is felt
        )
        try:
            _notice_silence(made._transport.get_extra_info("socket"))
        except OSError:  # it broke already
            terminate(made)
            raise
        teach(made)
        return made

    connector = Connector(connect)
    try:
        first = await connector.connect()
        await migrate(first, place.schema)
    except DRIVER as error:
        await connector.close()
        raise translate(error) from error
    except BaseException:
        connector.hang_up()
        raise
    client = Client(connector, place.schema, place.pool)
    client.adopt(first)
    return PostgresStorage(client, clock)


def _notice_silence(wire: Any) -> None:
    """Let the kernel give up a connection whose other end vanished without a word, within half a minute."""
    if wire is None or wire.family not in (socket.AF_INET, socket.AF_INET6):
        return
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, name):
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def place_of(parts: SplitResult) -> Place:
    """Take our own options out of the URL; what is left is for the driver."""
    own = {"schema": "accoda", "pool": "10", "connect_timeout": "10"}
    passed = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in OWN:
            own[name] = value
        elif name in LIBPQ:
            passed.append((name, value))
        else:
            known = ", ".join(sorted({*OWN, *LIBPQ}))
            raise InvalidInput("url", f"postgresql:// has no option {name!r}; it takes {known}")
    if not _SCHEMA.match(own["schema"]) or own["schema"].startswith("pg_"):
        raise InvalidInput("url", f"option schema must be letters, digits and '_', not {own['schema']!r}")
    return Place(
        dsn=urlunsplit(parts._replace(query=urlencode(passed))),
        schema=own["schema"],
        pool=_whole("pool", own["pool"]),
        connect_timeout=float(_whole("connect_timeout", own["connect_timeout"])),
    )


def _whole(name: str, value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) <= 1000:
        raise InvalidInput("url", f"option {name} must be a whole number from 1 to 1000, not {value!r}")
    return int(value)
