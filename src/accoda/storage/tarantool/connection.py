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
_PREFIX = 0xCE  # the length is always written as a 32-bit number
_LONGEST = 1 << 30  # bytes of a packet: more than any answer has; who waited for four gigabytes would wait for ever
_HANDSHAKE_PATIENCE = 5.0
SILENCE = 10.0  # seconds that the server may be silent while it owes an answer, though it is asked for a sign of life
CALL_PATIENCE = 60.0  # seconds for one call: a server that lives may be unable to write; longer than any long poll


class _Pending:
    """A request whose answer has not come."""

    __slots__ = ("decoder", "future", "late", "since")

    def __init__(
        self, future: asyncio.Future[Any], since: float, decoder: Decoder[Any], late: Callable[[Any], None] | None
    ) -> None:
        self.future = future
        self.since = since
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
        self._heard_at = 0.0
        self._asked = False
        self._watch: asyncio.TimerHandle | None = None

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
        self._give_up("closed")

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
        now = self._loop.time()
        if not self._pending:
            self._heard_at = now
            if self._watch is None:
                self._watch = self._loop.call_later(SILENCE / 2, self._look_for_silence)
        self._pending[sync] = _Pending(future, now, decoder, late)
        self._transport.write(request)
        return future

    def _look_for_silence(self) -> None:
        """One timer for the connection, not one for each call. It runs while an answer is owed."""
        self._watch = None
        if self.lost or not self._pending:
            return
        now = self._loop.time()
        oldest = next(iter(self._pending.values())).since  # a dict keeps the order in which they were sent
        if self._asked:  # half a silence ago; what arrived while this loop was busy has been read before we came here
            self._give_up(f"no answer for {SILENCE:g} s")
        elif now - oldest >= CALL_PATIENCE:
            self._give_up(f"a call had no answer for {CALL_PATIENCE:g} s")
        else:
            if now - self._heard_at >= SILENCE / 2:
                # A long poll may keep the server silent for longer. So ask: a sign of life is an answer, too.
                self._asked, sync = True, self._next()
                _ignore(self._send(sync, wire.ping(sync), _NOTHING, None))
            self._watch = self._loop.call_later(SILENCE / 2, self._look_for_silence)

    def _give_up(self, why: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(ConnectionLost(why))

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        _watch_for_a_dead_peer(transport.get_extra_info("socket"))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionLost("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._heard_at, self._asked = self._loop.time(), False
        # A large answer comes in many pieces: they are joined once, when the last one is here.
        self._pieces.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        try:
            position = self._read(data)
        except (LookupError, ValueError) as error:  # where the next packet begins cannot be known
            self._give_up(f"no Tarantool at the other end: {error!r}")
            return
        self._pieces.clear()
        if position < len(data):
            self._pieces.append(data[position:])
            self._missing -= len(data) - position

    def _read(self, data: bytes) -> int:
        """Handle all whole packets; where the rest begins. `_missing` then counts from there."""
        position, size = 0, len(data)
        if not self._greeting.done():
            position = wire.GREETING_SIZE  # whole, because nothing less was missing
            if not data.startswith(b"Tarantool"):
                raise ValueError("no greeting")
            self._greeting.set_result(data[:position])
        view = memoryview(data)
        while size - position >= wire.PREFIX_SIZE:
            end = position + wire.PREFIX_SIZE + wire.length_at(data, position)
            if data[position] != _PREFIX or end - position > _LONGEST:
                raise ValueError("a packet of an impossible length")
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
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
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


def _ignore(answer: asyncio.Future[Any]) -> None:
    """Nobody waits for it, and its error is no news."""
    answer.add_done_callback(lambda future: future.cancelled() or future.exception())


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
