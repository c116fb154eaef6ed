"""Runs one statement on some connection, again where that is safe, and speaks of errors in Accoda's words."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

from accoda.errors import StorageClosed
from accoda.storage.backoff import Backoff
from accoda.storage.patience import patience_of
from accoda.storage.postgres.connector import CLOSED, Connection, Connector
from accoda.storage.postgres.errors import DRIVER, UNDONE, is_lost, translate
from accoda.storage.postgres.pool import Pool
from accoda.storage.scripts import load_queries

RECONNECT_FOR = 30.0  # seconds that a call waits for a server that is away, before it gives up
_FIRST_NAP, _LONGEST_NAP = 0.02, 2.0  # each connection is a process there: many clients must come back slowly

P = ParamSpec("P")
T = TypeVar("T")

_IN_TWO = frozenset({"enqueue_told"})  # statements of two transactions

_QUERIES = load_queries("accoda.storage.postgres", "queries.sql")


def queries_for(schema: str) -> dict[str, str]:
    """The statements of queries.sql for a schema, whose name is known to be harmless."""
    return {name: text.replace("accoda.", f'"{schema}".') for name, text in _QUERIES.items()}


class Client:
    """Belongs to the event loop in which it was made; calls from other loops and threads are carried out there."""

    def __init__(self, connector: Connector, schema: str, size: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.schema = schema
        self.queries = queries_for(schema)
        self.connect = connector.connect
        self._connector = connector
        self._pool = Pool(connector.connect, size)
        self._process = os.getpid()
        self._closed = False

    def adopt(self, connection: Connection) -> None:
        """Use a connection that is already there."""
        self._pool.adopt(connection)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def reachable(self) -> bool:
        """Whether its event loop and its connections are ours to use: not in a forked child, nor after its loop."""
        return os.getpid() == self._process and not self.loop.is_closed()

    @property
    def is_at_hand(self) -> bool:
        """Whether a call from here would be sent at once, by a connection that is free."""
        return asyncio.get_running_loop() is self.loop and self._pool.is_at_hand

    async def fetch(self, query: str, *args: object, repeat: bool) -> Sequence[Any]:
        """Run a statement in a transaction of its own and give its rows.

        Where nothing was sent, or the server says that it undid the call, it is sent again. Where the connection broke
        before the answer came, nobody knows whether it was carried out: it is sent again only if `repeat`, which says
        that twice does no harm, and raises `StorageUnavailable` otherwise.
        """
        self.check()
        if asyncio.get_running_loop() is self.loop:
            return await self.send(query, args, repeat)
        return await self.at_home(self.send, query, args, repeat)

    async def at_home(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the work in the loop in which the client was made."""
        if asyncio.get_running_loop() is self.loop or self.loop.is_closed():
            return await work(*args, **kwargs)
        there = asyncio.run_coroutine_threadsafe(work(*args, **kwargs), self.loop)
        return await asyncio.wrap_future(there)

    async def value(self, query: str, *args: object, repeat: bool) -> Any:
        """The only column of the only row."""
        return (await self.fetch(query, *args, repeat=repeat))[0][0]

    def refuse(self) -> None:
        """Take no more calls; those under way go on."""
        self._closed = True

    async def close(self) -> None:
        """Let calls under way finish, then close every connection."""
        self.refuse()
        await self._pool.close()
        await self._connector.close()

    def hang_up(self) -> None:
        """Close every connection at once."""
        self.refuse()
        if os.getpid() == self._process:  # those of a forked child are its parent's
            self._connector.hang_up()

    def check(self) -> None:
        if os.getpid() != self._process:
            raise StorageClosed("this PostgreSQL storage was opened before the process forked; open it in the child")
        if self._closed:
            raise StorageClosed(CLOSED)
        if self.loop.is_closed():
            raise StorageClosed("the event loop in which this PostgreSQL storage was opened has ended; open it again")

    async def send(self, query: str, args: tuple[object, ...], repeat: bool) -> Sequence[Any]:
        """As `fetch`, in the client's own loop, and also while the client is being closed."""
        text = self.queries[query]
        end = self.loop.time() + patience_of(RECONNECT_FOR)
        backoff: Backoff | None = None
        while True:
            connection = None
            try:
                connection = await self._pool.acquire(end, query)
                # No await between the check in acquire and the send: what broke before was seen there.
                rows: Sequence[Any] = await connection.fetch(text, *args)
                return rows
            except DRIVER as problem:
                error = problem if connection is None else self._pool.blame(connection, problem)
                sent = connection is not None
                again = isinstance(error, UNDONE) or (is_lost(error) and (repeat or not sent))
                if again and self._closed:  # the server may be well: it is we who hung up
                    raise StorageClosed(CLOSED) from error
                if not again or self.loop.time() > end:
                    unsure = sent and not repeat
                    raise translate(error, unsure=unsure, in_two=query in _IN_TWO) from error
            finally:
                if connection is not None:
                    self._pool.release(connection)
            backoff = backoff or Backoff(_FIRST_NAP, _LONGEST_NAP)
            await backoff.nap(end - self.loop.time())
            self.check()
