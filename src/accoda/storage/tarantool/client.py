"""Calls that survive the connection: it reconnects, repeats what may be repeated, and serves every thread.

The connection belongs to the event loop in which the storage was opened; calls from other loops are carried there.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from msgspec.msgpack import Decoder

from accoda.clock import Clock
from accoda.errors import StorageClosed, StorageError, StorageUnavailable
from accoda.storage.backoff import Backoff
from accoda.storage.patience import patience_of
from accoda.storage.tarantool import application
from accoda.storage.tarantool.address import Address
from accoda.storage.tarantool.connection import Connection, connect
from accoda.storage.tarantool.errors import LOADING, STARTING, ConnectionLost, ServerError, translate

T = TypeVar("T")
PATIENCE = 10.0  # seconds that a call waits for the server to come back
_START_PATIENCE = 2.0  # seconds that a server which starts may refuse to write
_FIRST_PAUSE = 0.02  # between two attempts to connect; longer and longer
_TROUBLE = (OSError, TimeoutError, ConnectionLost)


class _Trouble:
    """The connections that one call has lost: a server that is there but never answers must not hold it for ever."""

    def __init__(self, address: Address, verb: str) -> None:
        self.doubt = f"the {verb} that was under way may or may not have been done"
        self.first_at: float | None = None
        self._address = address
        self._backoff = Backoff()

    async def lost(self, error: ConnectionLost, now: float) -> None:
        """Return when the call should be sent again: at once after the first loss, then after longer naps each time."""
        if self.first_at is None:
            self.first_at = now
        elif now - self.first_at > patience_of(PATIENCE):
            raise StorageUnavailable(
                f"{self._address} takes calls but does not answer ({error}); look at the server; {self.doubt}",
                unsure=True,
            ) from error
        else:
            await self._backoff.nap()


class Client:
    def __init__(self, address: Address, clock: Clock | None, connection: Connection) -> None:
        self.address = address
        self._clock = clock
        self._connection = connection
        self._connecting: asyncio.Task[Connection] | None = None
        self._home = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._name = secrets.token_hex(8)  # for receipts
        self._number = 0
        self._slots = 0
        self._free_slots: list[int] = []
        self._closed = False

    async def call(
        self,
        verb: str,
        args: Sequence[Any],
        decoder: Decoder[Any],
        late: Callable[[Any], None] | None = None,
    ) -> Any:
        """Run a verb of the application and give its answer.

        A call whose answer was lost with the connection may have been carried out. It is sent again over the next
        connection: so this is for verbs that do no harm when they are carried out twice. `late` gets the answer if the
        caller is cancelled before it could reach him.
        """
        self.check()
        if asyncio.get_running_loop() is not self._home:
            return await self.at_home(self._call(verb, args, decoder, late))
        return await self._call(verb, args, decoder, late)

    async def once(
        self, verb: str, args: Sequence[Any], decoder: Decoder[Any], late: Callable[[Any], None] | None = None
    ) -> Any:
        """`call` for a verb that must be carried out at most once: sent again, it only gives the first answer again."""
        self.check()
        if asyncio.get_running_loop() is not self._home:
            return await self.at_home(self._once(verb, args, decoder, late))
        return await self._once(verb, args, decoder, late)

    async def _once(
        self, verb: str, args: Sequence[Any], decoder: Decoder[Any], late: Callable[[Any], None] | None
    ) -> Any:
        # A slot is free when its call is over. One that was cancelled may still be carried out, but no later than any
        # call that follows it over the same connection; over another one, the server refuses it by its lower number.
        slot = self._free_slots.pop() if self._free_slots else self._new_slot()
        self._number += 1
        try:
            return await self._call(verb, ((self._name, slot, self._number), *args), decoder, late)
        finally:
            self._free_slots.append(slot)

    def _new_slot(self) -> int:
        self._slots += 1
        return self._slots

    async def _call(
        self, verb: str, args: Sequence[Any], decoder: Decoder[Any], late: Callable[[Any], None] | None
    ) -> Any:
        trouble = _Trouble(self.address, verb)
        give_up_at: float | None = None
        while True:
            connection = self._connection
            if connection.lost:
                connection = await self._connected_again(trouble)
            future = connection.call(verb, (self._moment(), *args), decoder, late)
            try:
                return await future
            except asyncio.CancelledError:
                # The answer may be here already, though it has not reached the caller.
                if late is not None and future.done() and not future.cancelled() and future.exception() is None:
                    late(future.result())
                raise
            except ServerError as error:
                # A server that starts answers for a moment as if it were read-only. Such a call changed nothing.
                now = self._home.time()
                give_up_at = give_up_at or now + _START_PATIENCE
                if error.code not in STARTING or now > give_up_at:
                    raise translate(error, self.address) from error
                await asyncio.sleep(_FIRST_PAUSE)
            except ConnectionLost as error:
                self.check()
                await trouble.lost(error, self._home.time())

    async def _connected_again(self, trouble: _Trouble) -> Connection:
        try:
            return await self.connected()
        except StorageUnavailable as error:
            if trouble.first_at is None:
                raise
            raise StorageUnavailable(f"{error}; {trouble.doubt}", unsure=True) from error

    def _moment(self) -> int | None:
        """What the server shall take for now: None, its own clock, but in tests that move time by hand."""
        return None if self._clock is None else self._clock.now()

    def send(self, verb: str, args: Sequence[Any], decoder: Decoder[Any]) -> asyncio.Future[Any]:
        """Put a call on its way before anything else is sent, at home, on the connection as it is."""
        return self._connection.call(verb, (self._moment(), *args), decoder)

    async def at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this in the loop that has the connection."""
        if asyncio.get_running_loop() is self._home:
            return await work
        if not self._home.is_running():
            work.close()
            raise StorageClosed(
                f"the event loop in which {self.address} was opened has ended; open it again in this one"
            )
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    async def connected(self) -> Connection:
        """The connection, made again if it was lost. All who wait share one attempt."""
        self.check()
        if not self._connection.lost:
            return self._connection
        if self._connecting is None:
            self._connecting = self._home.create_task(self._reconnect())
        connecting = self._connecting
        patience = patience_of(PATIENCE + 1.0)  # longer than the attempt itself, unless somebody has less time
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(connecting)
        except TimeoutError as error:
            raise _unreachable(self.address, TimeoutError(f"not within {patience:g} s")) from error
        except asyncio.CancelledError:
            if connecting.cancelled():  # by `close`, not our caller
                self.check()
            raise

    async def _reconnect(self) -> Connection:
        try:
            self._connection = await open_connection(self.address, application.check, PATIENCE)
            return self._connection
        finally:
            self._connecting = None

    async def close(self) -> None:
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if self._home.is_running():
            await self.at_home(self._close())

    async def _close(self) -> None:
        self._connection.close()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        await asyncio.sleep(0)  # lets the transport close its socket

    def check(self) -> None:
        if self._closed:
            raise StorageClosed(f"the storage {self.address} was closed; open it again")
        if self._pid != os.getpid():
            raise StorageClosed(f"the storage {self.address} was opened before the process forked; open it again here")


async def open_connection(
    address: Address, prepare: Callable[[Connection], Awaitable[None]], patience: float
) -> Connection:
    """Connect, log in and prepare; try again for `patience` seconds while the server cannot be reached.

    A server that still loads its data is waited for in any case.
    """
    loop = asyncio.get_running_loop()
    start, backoff = loop.time(), Backoff(_FIRST_PAUSE)
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
            problem, allowed = error, PATIENCE
        except _TROUBLE as error:
            problem, allowed = error, patience
        if loop.time() - start >= allowed:
            raise _unreachable(address, problem) from problem
        await backoff.nap()


def _unreachable(address: Address, problem: Exception) -> StorageError:
    what = str(problem) or type(problem).__name__
    return StorageUnavailable(f"{address} cannot be reached: {what}; look whether the server runs and listens there")
