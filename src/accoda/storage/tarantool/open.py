"""From a `tarantool://` URL to a storage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult

from accoda.clock import Clock
from accoda.storage.common.reconnecting import Backoff, OutageLog
from accoda.storage.common.urls import options
from accoda.storage.tarantool import application, client
from accoda.storage.tarantool.address import Address, address_of
from accoda.storage.tarantool.client import Client, Connection
from accoda.storage.tarantool.errors import LOADING, ConnectionLost, ServerError, translate, unreachable
from accoda.storage.tarantool.storage import TarantoolStorage

_AWAY = (OSError, TimeoutError, ConnectionLost)


async def open_tarantool(parts: SplitResult, clock: Clock | None) -> TarantoolStorage:
    """Connect, install or upgrade the application if that is needed and allowed, and check its version."""
    chosen = options(parts, install=("yes", "no"))
    address = address_of(parts)
    outages = OutageLog("Tarantool")

    async def prepare(connection: Connection) -> None:
        if chosen["install"] == "yes":
            await application.install(connection)
        await application.check(connection)

    async def reopen() -> Connection:
        return await open_connection(address, application.check, client.PATIENCE, outages)

    connection = await open_connection(address, prepare, patience=0.0)
    return TarantoolStorage(Client(connection, reopen, clock), clock)


async def open_connection(
    address: Address,
    prepare: Callable[[Connection], Awaitable[None]],
    patience: float,
    outages: OutageLog | None = None,
) -> Connection:
    """Connect, log in and prepare; try again for `patience` seconds while the server cannot be reached.

    A server that still loads its data is waited for in any case.
    """
    loop = asyncio.get_running_loop()
    start, backoff = loop.time(), Backoff()
    while True:
        problem: Exception
        try:
            connection = await connect(address)
            try:
                await prepare(connection)
                return connection
            except BaseException:
                connection.close()
                raise
        except ServerError as error:
            if error.code != LOADING:
                raise translate(error, address) from error
            problem, allowed = error, client.PATIENCE
        except _AWAY as error:
            problem, allowed = error, patience
        if loop.time() - start >= allowed:
            raise unreachable(address, problem) from problem
        if outages is not None:
            outages.note(start, unreachable(address, problem))
        await backoff.nap()


async def connect(address: Address) -> Connection:
    """Connect and log in. Raises OSError, TimeoutError, ConnectionLost or ServerError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(client.HANDSHAKE_PATIENCE):
        _, connection = await loop.create_connection(lambda: Connection(address), address.host, address.port)
    try:
        await connection.log_in()
    except BaseException:
        connection.close()
        raise
    return connection
