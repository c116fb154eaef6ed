"""Bounds on the connections of a server: how many are open, and how long one may leave its answers unread.

What uvicorn writes stays in the process until the client reads it. Without these bounds a client that reads nothing
could keep a connection, and what waits in it, for as long as it likes.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from typing import Any

from accoda.http.security.rates import address_key

MOST = 900
"""Connections at once: with what a store needs, fewer than the 1,024 open files that many systems allow."""
STALLED_AFTER = 30.0
"""Seconds after which a connection is closed whose output does not move."""
OUTPUT = 16 * 1024
"""Bytes of output above which nothing more is written to a connection until its client has read some of it."""
LAST_WORDS = 15
"""Times 20 ms, at the end of the server, for the answers to requests that were cancelled."""


class Output(asyncio.Transport):
    """The transport of a connection as uvicorn sees it: it counts what is written, so that progress is known exactly.

    The size of the buffer alone does not tell it: an equal size may be new output behind output that was sent.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._written = 0
        self._sent = -1
        self._moved_at = 0.0
        peer = transport.get_extra_info("peername")
        self.address = address_key(str(peer[0])) if peer else ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += len(data)
        self._transport.write(data)

    def stalled_for(self, now: float) -> float:
        """Seconds since output was last seen to move, or to be all sent."""
        sent = self._written - self._transport.get_write_buffer_size()
        if sent != self._sent or sent == self._written:
            self._sent, self._moved_at = sent, now
        return now - self._moved_at

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        """Reset the connection: after a plain close the system would keep its unread output, up to some MB."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


class Connections:
    """The open connections of a server: at most `most`, and at most half of them from one address."""

    stalled_after = STALLED_AFTER

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._open: set[Output] = set()
        self._from: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, output: Output) -> bool:
        """Count a new connection; False: there is no room for it."""
        if len(self._open) >= self._most or self._from[output.address] >= max(1, self._most // 2):
            return False
        self._open.add(output)
        self._from[output.address] += 1
        if self._timer is None:
            self._look_later()
        return True

    def leave(self, output: Output) -> bool:
        """Forget a connection that has ended; False: it was never counted."""
        if output not in self._open:
            return False
        self._open.remove(output)
        self._from[output.address] -= 1
        if not self._from[output.address]:
            del self._from[output.address]
        return True

    async def end(self) -> None:
        """Close what is left. Without it, a request that waits for its client to read would hold the process."""
        for _ in range(LAST_WORDS):
            if self._open:
                await asyncio.sleep(0.02)
        for output in self._open:
            output.abort()
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.stalled_after / 6, self._look)

    def _look(self) -> None:
        """One timer for all connections: what a request costs does not change."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for output in self._open:
            if output.stalled_for(now) >= self.stalled_after:
                output.abort()  # close() would wait for the client to read
        if self._open:
            self._look_later()
