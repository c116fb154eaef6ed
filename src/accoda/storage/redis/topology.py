"""Which connection leads to the server that owns a slot: one server, or the master that the Sentinels name.

`cluster.py` has the third. A topology opens connections when they are asked for and forgets those that are lost; it
repeats nothing: that is the caller's part (`caller.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

import hiredis

from accoda.errors import StorageError
from accoda.storage.redis.address import Access, Address, connect
from accoda.storage.redis.connection import Connection, ConnectionLost, Push

T = TypeVar("T")


class Topology(Protocol):
    cluster: bool

    def ready(self, slot: int) -> Connection | None:
        """The connection for a slot, if it is open: the fast way."""
        ...

    async def open(self, slot: int) -> Connection:
        """The connection for a slot. Raises `ConnectionLost`."""
        ...

    async def open_extra(self, on_push: Push) -> Connection:
        """A connection of its own, for subscriptions."""
        ...

    async def at(self, address: Address) -> Connection:
        """The connection to a node that another node named."""
        ...

    def moved(self, slot: int, address: Address | None) -> None:
        """The owner of a slot is another one now; None: not known which."""
        ...

    def close(self) -> list[Connection]:
        """End all connections; they are given back to be waited for."""
        ...


class Shared(Generic[T]):
    """Work that many want at the same time: it is done once, and all who came meanwhile get its result or its error.

    With a lock instead, each in the line would try for himself when his turn comes: to a server that does not answer,
    a thousand calls would then wait for a thousand attempts, one after the other.
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
            return await asyncio.shield(task)  # who is cancelled leaves the work to the others
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
            task.exception()  # if nobody waits any more, it is no news


class Line:
    """At most one connection to one place; whoever finds it lost opens a new one for all."""

    def __init__(self, dial: Callable[[], Awaitable[Connection]]) -> None:
        self._dial = dial
        self._opening = Shared(self._open)
        self._closed = False
        self.connection: Connection | None = None

    def ready(self) -> Connection | None:
        connection = self.connection
        return connection if connection is not None and connection.lost is None else None

    async def open(self) -> Connection:
        return self.ready() or await self._opening.get()

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
        self._line = Line(lambda: self._dial(None))

    def ready(self, slot: int) -> Connection | None:
        connection = self._line.connection  # as `Line.ready`, in one call less for each command
        return connection if connection is not None and connection.lost is None else None

    async def open(self, slot: int) -> Connection:
        return await self._line.open()

    async def open_extra(self, on_push: Push) -> Connection:
        return await self._dial(on_push)

    async def at(self, address: Address) -> Connection:
        raise StorageError("this server is a node of a Redis Cluster; open it with redis+cluster://")

    def moved(self, slot: int, address: Address | None) -> None:
        # A master that became a replica answers READONLY: ask again who is the master.
        self._line.hang_up("the server is no master any more")

    def close(self) -> list[Connection]:
        return self._line.close()

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
