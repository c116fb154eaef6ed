"""From a `postgresql://` URL to a storage."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

from accoda.clock import Clock
from accoda.errors import InvalidInput
from accoda.storage.postgres.client import Client, open_pool
from accoda.storage.postgres.connection import Place
from accoda.storage.postgres.errors import DRIVER, translate
from accoda.storage.postgres.migrate import migrate
from accoda.storage.postgres.storage import PostgresStorage

# What libpq calls by the same names; asyncpg understands it.
LIBPQ = frozenset(
    [
        *("host", "port", "dbname", "user", "password", "passfile", "service", "servicefile", "target_session_attrs"),
        *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation"),
        *(
            "ssl_min_protocol_version",
            "ssl_max_protocol_version",
            "krbsrvname",
            "gsslib",
            "application_name",
            "options",
        ),
    ]
)
OWN = ("connect_timeout", "pool", "schema")

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


async def open_postgres(parts: SplitResult, clock: Clock | None) -> PostgresStorage:
    place = place_of(parts)
    pool = await open_pool(place)
    try:
        connection = await pool.acquire()
        await migrate(connection, place.schema)
        await pool.release(connection)
    except BaseException as error:
        pool.terminate()  # not released first, which would wait for a server that may not answer
        if isinstance(error, DRIVER):
            raise translate(error) from error
        raise
    return PostgresStorage(Client(place, pool), clock)


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
