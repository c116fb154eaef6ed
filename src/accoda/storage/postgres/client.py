"""Runs the statements of a storage on the connections of a pool, again where that is safe, and tells other processes
which queues have something new.

A notification (NOTIFY) is sent after the commit, by a transaction of its own that does not wait for the disk:
PostgreSQL commits transactions that notify one at a time, so an enqueue that did it itself would wait for all the
others. Only after a quiet moment the statement itself sends it, which is sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]

from accoda.errors import AccodaError, StorageClosed
from accoda.storage.common.loop_affinity import LoopAffinity
from accoda.storage.common.reconnecting import Backoff, OutageLog, patience_limit
from accoda.storage.postgres.connection import Place, connect
from accoda.storage.postgres.errors import DRIVER, UNDONE, is_lost, is_unsent, translate

RECONNECT_FOR = 30.0  # seconds that a call waits for a server that is away, before it gives up
SILENCE = 30.0  # seconds after which a server that has not answered a call is given up
CLOSE_PATIENCE = 5.0  # seconds that calls under way, and then connections, get to end
QUIET = 0.02  # seconds without a notification after which a statement sends its own
PAUSE = 0.002  # seconds between two notifications of one process: what comes meanwhile goes together
_FIRST_NAP, _LONGEST_NAP = 0.02, 2.0  # each connection is a process there: many clients must come back slowly

T = TypeVar("T")


def call_of(schema: str, function: str, arguments: int) -> str:
    """The statement that calls a function of verbs/. The schema's name is known to be harmless.

    >>> call_of("accoda", "take", 2)
    'SELECT * FROM "accoda".take($1, $2)'
    """
    return f'SELECT * FROM "{schema}".{function}({", ".join(f"${n}" for n in range(1, arguments + 1))})'


class Client:
    """Belongs to the event loop in which it was made; calls from other loops and threads are carried out there."""

    def __init__(self, place: Place, pool: Any) -> None:
        self.place = place
        self._calls: dict[str, str] = {}  # the statement for each function
        self.affinity = LoopAffinity("this PostgreSQL storage")
        self._loop = self.affinity.loop
        self._pool = pool
        self.outages = OutageLog("PostgreSQL")
        self._news: set[str] = set()
        self._notified_at = 0.0
        self._notifying: asyncio.Task[None] | None = None
        self._acquiring: set[asyncio.Timeout] = set()  # calls that wait for a connection
        self._beside: set[asyncio.Task[None]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the loop of the connections."""
        if asyncio.get_running_loop() is self._loop and not self.affinity.closed:
            return await work
        return await self.affinity.run(work)

    async def fetch(self, function: str, *args: object, repeat: bool) -> list[Any]:
        """Call a function in a transaction of its own and give its rows.

        Where nothing was sent, or the server says that it undid the call, it is sent again. Where the connection broke
        before the answer came, it is unknown whether it was carried out: it is sent again only if `repeat`, which says
        that twice does no harm, and raises `StorageUnavailable` otherwise.
        """
        text = self._calls.get(function)
        if text is None:
            text = self._calls[function] = call_of(self.place.schema, function, len(args))
        end = self._loop.time() + min(RECONNECT_FOR, patience_limit.get())
        backoff: Backoff | None = None
        failed_at: float | None = None
        while True:
            connection = None
            try:
                connection = await self._acquire(end)
                # No await between the pool's own check and the send: it has seen what broke before.
                return await self._send(connection, text, args)
            except DRIVER as error:
                sent = connection is not None and not is_unsent(error)
                again = isinstance(error, UNDONE) or (is_lost(error) and (repeat or not sent))
                if again and self.affinity.closed:  # the server may be well: the storage hung up
                    raise StorageClosed("this PostgreSQL storage was closed; open a new one") from error
                if not again or self._loop.time() > end:
                    raise translate(error, unsure=sent and not repeat) from error
                if is_lost(error):
                    failed_at = failed_at or self._loop.time()
                    self.outages.note(failed_at, error)
            backoff = backoff or Backoff(_FIRST_NAP, _LONGEST_NAP)
            await backoff.nap(end - self._loop.time())

    async def value(self, function: str, *args: object, repeat: bool) -> Any:
        """The only column of the only row."""
        return (await self.fetch(function, *args, repeat=repeat))[0][0]

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out what no caller waits for. A close gives it some time to end."""
        task = self._loop.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def finish(self, within: float) -> None:
        """Give what runs beside the calls some seconds to end."""
        if self._beside:
            await asyncio.wait(self._beside, timeout=within)

    async def _acquire(self, end: float) -> Any:
        limit = asyncio.timeout_at(end)
        self._acquiring.add(limit)
        try:
            async with limit:
                return await self._pool.acquire()
        except TimeoutError as error:
            raise TimeoutError(str(error) or "no connection could be made or came free in time") from error
        finally:
            self._acquiring.discard(limit)

    async def _send(self, connection: Any, text: str, args: tuple[object, ...]) -> list[Any]:
        # The kernel may notice a host that vanished; this notices a server that is stopped, or a proxy in between whose
        # way ends there: they still acknowledge packets.
        given_up = self._loop.call_later(SILENCE, connection.terminate)
        try:
            rows: list[Any] = await connection.fetch(text, *args)
        except BaseException as error:
            if is_unsent(error):
                connection.terminate()  # else the pool would hand it out again
            # A caller that was cancelled does not wait until the server has cancelled the statement, too.
            self.beside(self._release(connection))
            if isinstance(error, (*DRIVER, AttributeError)) and self._loop.time() >= given_up.when():
                raise TimeoutError(f"no answer for {SILENCE:g} s") from error
            if isinstance(error, AttributeError) and _is_gone(connection):  # asyncpg, between two steps of this call
                raise ConnectionResetError("the connection was lost") from error
            raise
        finally:
            given_up.cancel()
        await self._release(connection)
        return rows

    async def _release(self, connection: Any) -> None:
        with contextlib.suppress(*DRIVER):  # it broke, which the answer does not depend on
            await self._pool.release(connection, timeout=CLOSE_PATIENCE)

    # -- notifications

    def is_quiet(self) -> bool:
        """Whether a statement should send its own notification: this process has sent none for a while."""
        now = self._loop.time()
        quiet = self._notifying is None and now - self._notified_at > QUIET
        if quiet:
            self._notified_at = now
        return quiet

    def notify(self, news: Collection[str]) -> None:
        """Wake the callers that wait for these queues, in all processes, within a few milliseconds."""
        self._news.update(news)
        if self._notifying is None and self._news:
            self._notifying = self._loop.create_task(self._notify())

    async def _notify(self) -> None:
        try:
            while self._news:
                news, self._news = sorted(self._news), set()
                # An error is dropped: a waiting caller looks every few seconds anyway.
                with contextlib.suppress(AccodaError):
                    await self.fetch("notify", news, repeat=True)
                self._notified_at = self._loop.time()
                await asyncio.sleep(PAUSE)
        finally:
            self._notifying = None

    # -- the end

    async def close(self) -> None:
        """Let calls that were sent and last notifications end, then close every connection."""
        self._turn_away()
        try:
            async with asyncio.timeout(CLOSE_PATIENCE):
                while tasks := {*self._beside, *filter(None, (self._notifying,))}:
                    await asyncio.wait(tasks)
                await self._pool.close()
        except TimeoutError:
            pass
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        """Close every connection at once."""
        self._turn_away()
        for task in (*self._beside, *filter(None, (self._notifying,))):
            task.cancel()
        self._pool.terminate()

    def _turn_away(self) -> None:
        """End the calls that wait for a connection, perhaps for one that is just being made."""
        for limit in self._acquiring:
            if not limit.expired():
                limit.reschedule(self._loop.time())


def _is_gone(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # the pool has taken it back, as it does with one that was terminated
        return True


async def open_pool(place: Place) -> Any:
    """Connections are made when they are needed, and closed after five minutes without use."""
    is_checked = False

    async def connect_for_pool(_: str, **options: Any) -> Any:
        nonlocal is_checked
        connection = await connect(place, is_first=not is_checked, **options)
        is_checked = True
        return connection

    return await asyncpg.create_pool(
        place.dsn,
        min_size=0,
        max_size=place.pool,
        max_queries=sys.maxsize,
        connect=connect_for_pool,
        reset=_leave_as_it_is,
        timeout=place.connect_timeout,
        max_cached_statement_lifetime=0,  # there are few, each for ever: to prepare one again is felt
    )


async def _leave_as_it_is(_: Any) -> None:
    """Every call is one statement and leaves nothing behind in its session, so nothing needs a round trip to reset."""
