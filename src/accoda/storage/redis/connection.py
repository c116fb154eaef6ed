"""One lean connection: commands go out in the order of the calls, replies come back in that order.

Calls of many tasks share it without waiting for each other, and what is sent within one turn of the event loop goes out
in one write: this is the pipelining. uvloop gathers writes by itself; for other loops it is done here, unless a call is
in a hurry. `docs/decisions/0004-redis.md` compares it with redis-py.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

Argument = bytes | str | int
Push = Callable[[Any], None]

_pack: Callable[[tuple[Argument, ...]], bytes] = cast(Any, hiredis.pack_command)

# What the reader makes of bytes that are no replies: besides its own error, an array of four billion (no memory), and a
# map with a list for a key.
_NONSENSE = (hiredis.ProtocolError, MemoryError, TypeError)


class ConnectionLost(Exception):
    """The connection ended; whether the commands without a reply were carried out is not known."""


class Connection(asyncio.Protocol):
    """`timeout` is how long the server may stay silent while it owes a reply."""

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._on_push: Push | None = None
        self._reader = hiredis.Reader()
        self._owed: deque[asyncio.Future[Any]] = deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._gathers = False  # whether the transport itself puts the writes of a turn together
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self.lost: ConnectionLost | None = None

    # -- for callers

    def send(self, *command: Argument, at_once: bool = False) -> asyncio.Future[Any]:
        """Its future reply. An error reply is a result too: a `hiredis.ReplyError`.

        `at_once`: nothing that could go with it is to be expected in this turn of the loop.
        """
        reply = self._loop.create_future()
        if self.lost is not None:
            reply.set_exception(self.lost)
            return reply
        if not self._owed:
            self._heard_at = self._loop.time()
            if self._watch is None:
                self._watch = self._loop.call_later(self._timeout, self._look_for_silence)
        self._owed.append(reply)
        self._write(command, at_once)
        return reply

    def tell(self, *command: Argument) -> None:
        """Send a command whose answer comes as a push: SUBSCRIBE and its like."""
        if self.lost is None:
            self._write(command)

    def listen(self, on_push: Push | None) -> None:
        """From now on, everything that arrives goes to `on_push`, and in the end the `ConnectionLost`."""
        self._on_push = on_push

    def abort(self, why: str) -> None:
        """End it now; whoever waits for a reply is told."""
        self._fail(why)
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        await self._ended.wait()

    def _write(self, command: tuple[Argument, ...], at_once: bool = False) -> None:
        packed = _pack(command)
        if self._out:  # what was sent before goes before
            self._out.append(packed)
        elif (at_once or self._gathers) and self._transport is not None:
            self._transport.write(packed)
        else:
            self._loop.call_soon(self._flush)
            self._out.append(packed)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and self.lost is None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _look_for_silence(self) -> None:
        """One timer for the connection, not one for each call."""
        self._watch = None
        if not self._owed or self.lost is not None:
            return
        silent_for = self._loop.time() - self._heard_at
        if silent_for >= self._timeout:
            self.abort(f"no answer for {self._timeout:g} s")
        else:
            self._watch = self._loop.call_later(self._timeout - silent_for, self._look_for_silence)

    def _fail(self, why: str) -> None:
        if self.lost is not None:
            return
        self.lost = ConnectionLost(why)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._owed:
            reply = self._owed.popleft()
            if not reply.done():
                reply.set_exception(ConnectionLost(why))
        if self._on_push is not None:
            self._on_push(self.lost)

    # -- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._gathers = type(transport).__module__.partition(".")[0] == "uvloop"
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self._take(reply)
        except _NONSENSE as error:
            self.abort(f"no Redis at the other end: {error or type(error).__name__}")

    def _take(self, reply: Any) -> None:
        if self._on_push is not None:
            self._on_push(reply)
        elif not self._owed:
            self.abort("no Redis at the other end: it answers what nobody asked")
        elif not (owed := self._owed.popleft()).done():  # its caller may have been cancelled
            owed.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(str(error) if error else "the server closed the connection")
        self._ended.set()
