"""From a `tarantool://` URL to a storage."""

from __future__ import annotations

from urllib.parse import SplitResult

from accoda.clock import Clock
from accoda.storage.tarantool import application
from accoda.storage.tarantool.address import address_of
from accoda.storage.tarantool.client import Client, open_connection
from accoda.storage.tarantool.connection import Connection
from accoda.storage.tarantool.storage import TarantoolStorage
from accoda.storage.urls import options


async def open_tarantool(parts: SplitResult, clock: Clock | None) -> TarantoolStorage:
    """Connect, install or upgrade the application if that is needed and allowed, and check its version."""
    chosen = options(parts, install=("yes", "no"))
    address = address_of(parts)

    async def prepare(connection: Connection) -> None:
        if chosen["install"] == "yes":
            await application.install(connection)
        await application.check(connection)

    connection = await open_connection(address, prepare, patience=0.0)
    return TarantoolStorage(Client(address, clock, connection), clock)
