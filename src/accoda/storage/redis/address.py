"""Where a server is and how to get in: addresses, credentials, TLS, and the first words on a new connection."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import hiredis
from msgspec import Struct

from accoda.errors import StorageError
from accoda.storage.redis.connection import Connection, ConnectionLost, Push

Address = tuple[str, int]


class Access(Struct, frozen=True):
    """What a new connection needs beside an address. `timeout` is for a connect, `silence` for each reply."""

    username: str | None = None
    password: str | None = None
    db: int = 0
    tls: ssl.SSLContext | None = None
    timeout: float = 5.0
    silence: float = 10.0


async def connect(address: Address, access: Access, on_push: Push | None = None) -> Connection:
    """A connection that is logged in and at its database. Raises `ConnectionLost`, or `StorageError` if refused."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(access.timeout):
            _, connection = await loop.create_connection(lambda: Connection(access.silence), *address, ssl=access.tls)
            try:
                await _log_in(connection, access)
            except BaseException:
                connection.abort("not let in")
                raise
    except (OSError, TimeoutError) as error:
        raise ConnectionLost(f"{address[0]}:{address[1]}: {error or 'no answer'}") from error
    connection.listen(on_push)
    return connection


async def _log_in(connection: Connection, access: Access) -> None:
    if access.password is not None:
        user = (access.username,) if access.username else ()
        _accept(await connection.send("AUTH", *user, access.password), "check user and password in the URL")
    if access.db:
        _accept(await connection.send("SELECT", access.db), "check the database number in the URL")


def _accept(reply: Any, advice: str) -> None:
    if isinstance(reply, hiredis.ReplyError):
        text = str(reply)
        if text.startswith("LOADING"):
            raise ConnectionLost(text)
        raise StorageError(f"Redis let us not in ({text}); {advice}") from reply
