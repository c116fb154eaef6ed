"""Which connection leads to the server that owns a slot: one server, or the master that the Sentinels name.

`cluster.py` has the third. A topology opens connections when they are asked for and forgets those that are lost; it
repeats nothing: that is the client's part.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

import hiredis
from msgspec import Struct

from accoda.errors import StorageError
from accoda.storage.redis.client import Connection, ConnectionLost, Push
from accoda.storage.redis.replies import Address

T = TypeVar("T")


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
                connection.abort("login refused")
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
        raise StorageError(f"Redis refused the login ({text}); {advice}") from reply


class SharedTask(Generic[T]):
    """Work that many callers want at the same time: it is done once, and all of them get its result or its error.

    With a lock instead, each caller would try by itself when its turn comes: to a server that does not answer, a
    thousand calls would wait for a thousand attempts, one after the other.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())
            self._task.add_done_callback(self._ended)
        task = self._task
        try:
            return await asyncio.shield(task)  # a caller that is cancelled leaves the work to the others
        except asyncio.CancelledError:
            if task.cancelled():  # by `cancel`, not our caller
                raise ConnectionLost("closed") from None
            raise

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # no caller may be left to see it


class Link:
    """At most one connection to one place; the first call that finds it lost opens a new one for all."""

    def __init__(self, dial: Callable[[], Awaitable[Connection]]) -> None:
        self._dial = dial
        self._opening = SharedTask(self._open)
        self._closed = False
        self.connection: Connection | None = None

    async def open(self) -> Connection:
        if self.connection is not None and self.connection.lost is None:
            return self.connection
        return await self._opening.get()

    async def _open(self) -> Connection:
        connection = self.connection = await self._dial()
        if self._closed:
            connection.abort("closed")
            raise ConnectionLost("closed")
        return connection

    def hang_up(self, why: str) -> None:
        if self.connection is not None:
            self.connection.abort(why)

    def close(self) -> list[Connection]:
        """End it for good; the connection is given back to be waited for."""
        self._closed = True
        self._opening.cancel()
        self.hang_up("closed")
        return [self.connection] if self.connection is not None else []


class Single:
    """One server; with `find` of a Sentinel set, the one that is the master at the moment."""

    cluster = False

    def __init__(self, find: Callable[[], Awaitable[Address]], access: Access) -> None:
        self._find = find
        self._access = access
        self._link = Link(lambda: self._dial(None))

    async def open(self, slot: int) -> Connection:
        return await self._link.open()

    async def open_extra(self, on_push: Push) -> Connection:
        return await self._dial(on_push)

    async def at(self, address: Address) -> Connection:
        raise StorageError("this server is a node of a Redis Cluster; open it with redis+cluster://")

    def moved(self, slot: int, address: Address | None) -> None:
        # A master that became a replica answers READONLY: ask again which is the master.
        self._link.hang_up("the server is no master any more")

    def close(self) -> list[Connection]:
        return self._link.close()

    async def _dial(self, on_push: Push | None) -> Connection:
        return await connect(await self._find(), self._access, on_push)


class Sentinels:
    """Asks the Sentinels, one after the other, which server is the master."""

    def __init__(self, addresses: Sequence[Address], name: str, access: Access) -> None:
        self._addresses = list(addresses)
        self._name = name
        self._access = access

    async def master(self) -> Address:
        troubles = []
        for address in list(self._addresses):
            try:
                found = await self._ask(address)
            except ConnectionLost as error:
                troubles.append(str(error))
                continue
            if found is not None:
                # The one that answered is asked first next time.
                self._addresses.remove(address)
                self._addresses.insert(0, address)
                return found
            troubles.append(f"{address[0]}:{address[1]} knows no master {self._name!r}")
        raise ConnectionLost("; ".join(troubles))

    async def _ask(self, address: Address) -> Address | None:
        connection = await connect(address, self._access)
        try:
            reply = await connection.send("SENTINEL", "get-master-addr-by-name", self._name)
        finally:
            connection.abort("asked")
            await connection.wait_closed()
        if reply is None or isinstance(reply, hiredis.ReplyError):
            return None
        return reply[0].decode(), int(reply[1])
