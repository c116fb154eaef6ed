"""One connection to the server. Many calls may be under way on it at once; a number pairs each with its answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec.msgpack import Decoder

from accoda.storage.tarantool import wire
from accoda.storage.tarantool.address import GUEST, Address
from accoda.storage.tarantool.errors import ConnectionLost, ServerError

__all__ = ["Connection", "ConnectionLost", "ServerError", "connect"]

_NOTHING: Decoder[Any] = Decoder(list[Any])
_MOST_SYNC = 0xFFFF_FFFF
_HANDSHAKE_PATIENCE = 5.0


class _Pending:
    """A request whose answer has not come."""

    __slots__ = ("decoder", "future", "late")

    def __init__(self, future: asyncio.Future[Any], decoder: Decoder[Any], late: Callable[[Any], None] | None) -> None:
        self.future = future
        self.decoder = decoder
        self.late = late


class Connection(asyncio.Protocol):
    def __init__(self, address: Address) -> None:
        self.address = address
        self.lost = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Future[bytes] = self._loop.create_future()
        self._pending: dict[int, _Pending] = {}
        self._pieces: list[bytes] = []
        self._missing = wire.GREETING_SIZE
        self._sync = 0

    def call(
        self, verb: str, args: Sequence[Any], decoder: Decoder[Any], late: Callable[[Any], None] | None = None
    ) -> asyncio.Future[Any]:
        """Run a verb of the application. The request is on its way when this returns.

        `late` gets the answer if the caller was cancelled before it came.
        """
        sync = self._next()
        return self._send(sync, wire.call(sync, "accoda_" + verb, args), decoder, late)

    def eval(self, script: str, args: Sequence[Any], decoder: Decoder[Any] = _NOTHING) -> asyncio.Future[Any]:
        sync = self._next()
        return self._send(sync, wire.eval_(sync, script, args), decoder, None)

    async def log_in(self) -> None:
        async with asyncio.timeout(_HANDSHAKE_PATIENCE):
            greeting = await self._greeting
            if self.address.user != GUEST or self.address.password:
                sync = self._next()
                request = wire.auth(sync, self.address.user, self.address.password, greeting)
                await self._send(sync, request, _NOTHING, None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(ConnectionLost("closed"))

    def _next(self) -> int:
        self._sync = 1 if self._sync == _MOST_SYNC else self._sync + 1
        return self._sync

    def _send(
        self, sync: int, request: bytes, decoder: Decoder[Any], late: Callable[[Any], None] | None
    ) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        if self.lost or self._transport is None:
            future.set_exception(ConnectionLost("not connected"))
            return future
        self._pending[sync] = _Pending(future, decoder, late)
        self._transport.write(request)
        return future

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        _watch_for_a_dead_peer(transport.get_extra_info("socket"))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionLost("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        # A large answer comes in many pieces: they are joined once, when the last one is here.
        self._pieces.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        position = self._read(data)
        self._pieces.clear()
        if position < len(data):
            self._pieces.append(data[position:])
            self._missing -= len(data) - position

    def _read(self, data: bytes) -> int:
        """Handle all whole packets; where the rest begins. `_missing` then counts from there."""
        position, size = 0, len(data)
        if not self._greeting.done():
            position = wire.GREETING_SIZE  # whole, because nothing less was missing
            self._greeting.set_result(data[:position])
        view = memoryview(data)
        while size - position >= wire.PREFIX_SIZE:
            end = position + wire.PREFIX_SIZE + wire.length_at(data, position)
            if end > size:
                self._missing = end - position
                return position
            self._answer(view[position + wire.PREFIX_SIZE : end])
            position = end
        self._missing = wire.PREFIX_SIZE
        return position

    def _answer(self, packet: memoryview) -> None:
        code, sync, body = wire.header_of(packet)
        pending = self._pending.pop(sync, None)
        if pending is None:
            return
        future = pending.future
        if future.cancelled() and pending.late is None:
            return
        try:
            answer = wire.body_of(code, packet[body:], pending.decoder)
        except Exception as error:  # an error answer, or one that cannot be understood: it belongs to the caller
            if not future.cancelled():
                future.set_exception(error)
            return
        if not future.cancelled():
            future.set_result(answer)
        elif pending.late is not None:
            pending.late(answer)

    def _end(self, reason: Exception) -> None:
        if self.lost:
            return
        self.lost = True
        waiting = [self._greeting, *(pending.future for pending in self._pending.values())]
        self._pending.clear()
        for future in waiting:
            if not future.done():
                error = ConnectionLost(str(reason) or type(reason).__name__)
                error.__cause__ = reason
                future.set_exception(error)
        # One that nobody awaits must not be complained about.
        if not self._greeting.cancelled():
            self._greeting.exception()


async def connect(address: Address) -> Connection:
    """Connect and log in. Raises OSError, TimeoutError, ConnectionLost or ServerError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_HANDSHAKE_PATIENCE):
        _, connection = await loop.create_connection(lambda: Connection(address), address.host, address.port)
    try:
        await connection.log_in()
    except BaseException:
        connection.close()
        raise
    return connection


def _watch_for_a_dead_peer(sock: socket.socket) -> None:
    """A host that vanished without a word is noticed after half a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has each of them
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
