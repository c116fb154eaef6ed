"""Makes every connection of a storage, and knows all that are alive: so none can outlive its close."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from accoda.errors import StorageClosed

Connection = Any  # asyncpg.Connection: asyncpg has no types

CLOSED = "this PostgreSQL storage was closed; open it again"
CLOSE_PATIENCE = 5.0  # seconds that the other end gets to say goodbye


class PromptConnection(asyncpg.Connection):  # type: ignore[misc]
    """Tells its listeners of a notification at once; the driver's own does so in the next turn of the event loop.

    The way is not a public one: where a later driver has another, it is as with the driver's own. Listeners must not
    raise: they are called by what reads the wire.
    """

    __slots__ = ()

    def _process_notification(self, process: int, channel: str, news: str) -> None:
        for listener in tuple(self._listeners.get(channel, ())):
            listener.cb(self, process, channel, news)


class Connector:
    """Who asks for a connection owns and closes it. What an owner could not close any more, `hang_up` ends."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._making: set[asyncio.Task[Connection]] = set()
        self._alive: set[Connection] = set()
        self._closed = False

    async def connect(self) -> Connection:
        """A new connection. Who is cancelled here need not wait for a server that is slow to answer."""
        if self._closed:
            raise StorageClosed(CLOSED)
        making = asyncio.create_task(self._make())
        self._making.add(making)
        making.add_done_callback(self._making.discard)
        try:
            # Not `await making`: so an end of the making cannot be mistaken for our own being cancelled, and the making
            # goes through its clean-up undisturbed, however often we are cancelled.
            await asyncio.wait({making})
        except asyncio.CancelledError:
            making.cancel()
            making.add_done_callback(_hang_up)  # in case that it was made in this very moment; it is called either way
            raise
        if making.cancelled():  # by a close: nobody else does it while we wait
            raise StorageClosed(CLOSED)
        return making.result()

    async def close(self) -> None:
        """Say goodbye on all connections; those that are still being made are given up."""
        self._give_up()
        try:
            await asyncio.gather(*(close(connection) for connection in self._alive.copy()))
        finally:
            self.hang_up()
        if self._making:
            await asyncio.wait(self._making, timeout=CLOSE_PATIENCE)

    def hang_up(self) -> None:
        """End everything at once, without a word."""
        self._give_up()
        for connection in self._alive.copy():
            # The loop of a connection may have ended. Then its transport cannot be closed, but the server is told.
            with contextlib.suppress(RuntimeError):
                terminate(connection)

    def _give_up(self) -> None:
        """No connection comes into being after this."""
        self._closed = True
        for making in self._making:
            with contextlib.suppress(RuntimeError):  # of a loop that has ended: it will never go on
                making.cancel()

    async def _make(self) -> Connection:
        connection = await self._connect()
        if self._closed:  # the driver was done when it was cancelled, and did not notice
            terminate(connection)
            raise StorageClosed(CLOSED)
        self._alive.add(connection)
        connection.add_termination_listener(self._alive.discard)
        return connection


def _hang_up(making: asyncio.Task[Connection]) -> None:
    """Nobody wants this connection any more."""
    if not making.cancelled() and making.exception() is None:
        terminate(making.result())


async def close(connection: Connection) -> None:
    """Say goodbye, or hang up if that takes long or is cancelled."""
    try:
        async with asyncio.timeout(CLOSE_PATIENCE):  # the driver's own does not count while it undoes a query
            await connection.close()
    except Exception:  # it is broken, and we wanted it gone
        terminate(connection)
    except asyncio.CancelledError:
        terminate(connection)
        raise


def terminate(connection: Connection) -> None:
    """Hang up. Where a close was cut short, asyncpg 0.30 takes the connection for closed and leaves its socket open."""
    connection.terminate()
    connection._transport.abort()
