"""A few connections that take turns. Smaller and faster than asyncpg's pool: no reset between calls is needed, since
every call is one statement and leaves nothing behind in its session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

from accoda.errors import StorageClosed
from accoda.storage.postgres.connector import CLOSED, Connection, terminate

CLOSE_PATIENCE = 5.0  # seconds that calls under way get to finish
SILENCE = 30.0  # seconds after which a server that has not answered a call is given up


class Pool:
    """At most `size` connections, made when needed. Who comes when all are busy waits, first come, first served."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self._free = size  # connections that may still be made
        self._idle: list[Connection] = []
        self._has_run: dict[Connection, set[str]] = {}
        self._busy: dict[Connection, float] = {}  # since when
        self._silent: set[Connection] = set()  # those of the busy ones that were given up
        self._watch: asyncio.TimerHandle | None = None
        self._queue: deque[asyncio.Future[Connection | None]] = deque()
        self._quiet = asyncio.Event()
        self._closed = False

    def adopt(self, connection: Connection) -> None:
        """Take over a connection that was made elsewhere."""
        self._free -= 1
        self._pass_on(connection)

    @property
    def is_at_hand(self) -> bool:
        """Whether `acquire` would give one without a wait."""
        return any(not connection.is_closed() for connection in self._idle)

    async def acquire(self, until: float | None = None, statement: str = "") -> Connection:
        """A connection that works as far as we know, or TimeoutError at the moment `until` of the loop's clock.

        If there is a choice, one that has run the statement before: the first time takes the server ten times as long.
        """
        connection = self._pop_idle(statement)
        if connection is None:
            try:
                async with asyncio.timeout_at(until):
                    connection = await self._wait_for_one()
            except TimeoutError as error:
                raise TimeoutError(str(error) or "no connection could be made or came free in time") from error
        self._has_run.setdefault(connection, set()).add(statement)
        loop = asyncio.get_running_loop()
        self._busy[connection] = loop.time()
        if self._watch is None:
            self._watch = loop.call_later(SILENCE / 4, self._look_for_silence)
        self._quiet.clear()
        return connection

    def release(self, connection: Connection) -> None:
        """Give it to the next who waits; one that broke makes room for a new one."""
        self._busy.pop(connection, None)
        self._silent.discard(connection)
        if not self._busy:
            self._quiet.set()
        if connection.is_closed():
            self._has_run.pop(connection, None)
            self._pass_on(None)
        else:
            self._pass_on(connection)

    async def close(self) -> None:
        """Turn away who waits, and end what takes too long. The connector closes the connections."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        while self._queue:
            self._pass_on(None)
        if self._busy:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), CLOSE_PATIENCE)
        for connection in self._busy:
            terminate(connection)

    def blame(self, connection: Connection, problem: BaseException) -> BaseException:
        """What ended the call: the problem, or that we hung up because the server was silent."""
        return TimeoutError(f"no answer for {SILENCE:g} s") if connection in self._silent else problem

    def _look_for_silence(self) -> None:
        """One timer for all calls. The kernel notices a host that vanished; this notices one that only keeps silent.

        A server that is stopped, or a proxy in between whose way ends there, still acknowledges our packets.
        """
        self._watch = None
        loop = asyncio.get_running_loop()
        for connection in [each for each, since in self._busy.items() if loop.time() - since >= SILENCE]:
            self._silent.add(connection)
            terminate(connection)  # its call ends with an error
        if self._busy and not self._closed:
            self._watch = loop.call_later(SILENCE / 4, self._look_for_silence)

    async def _wait_for_one(self) -> Connection:
        connection = None
        if self._free == 0:
            connection = await self._stand_in_line()
        else:
            self._free -= 1
        if self._closed:  # a connection that was on its way to us ends with all the others
            raise StorageClosed(CLOSED)
        if connection is None or connection.is_closed():  # it may have broken on its way
            connection = await self._make()
        return connection

    def _pop_idle(self, statement: str) -> Connection | None:
        while self._idle:
            connection = self._idle.pop(self._best(statement))
            if not connection.is_closed():
                return connection
            self._has_run.pop(connection, None)
            self._free += 1
        return None

    def _best(self, statement: str) -> int:
        """The place of the last used one that knows the statement, or else of the last used one.

        The others may be closed by whoever minds idle ones.
        """
        for place in range(len(self._idle) - 1, -1, -1):
            if statement in self._has_run.get(self._idle[place], ()):
                return place
        return -1

    async def _stand_in_line(self) -> Connection | None:
        """A connection, or None: the right to make one."""
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # our turn came in the same moment: the next one's, then
                self._pass_on(turn.result())
            raise

    async def _make(self) -> Connection:
        try:
            return await self._connect()
        except BaseException:
            self._pass_on(None)
            raise

    def _pass_on(self, connection: Connection | None) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if connection is None:
            self._free += 1
        else:
            self._idle.append(connection)
