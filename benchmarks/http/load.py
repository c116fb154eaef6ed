"""A load generator that costs the server as little as it can: raw sockets, requests made once, one at a time on each
connection. And it never sleeps.

One that sleeps has to be woken, and it is the server that pays for that: each answer to a sleeper sends an interrupt to
another core, which on a virtual machine takes about 10 µs of the server's own time. Sometimes the sleeper is still
awake, and then it takes nothing. That is most of the noise, and it is no cost of the service: it makes a fast server
look slow, and any two servers look alike. So the generator keeps a core of its own busy, for all cases alike.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

END = b"\r\n\r\n"
LENGTH = b"content-length: "

Next = Callable[[bytes], bytes | None]
"""From the body of an answer to the next request on that connection; None: end it."""


class Trouble(Exception):
    """The server did not answer as it should."""


def request(method: str, path: str, body: bytes = b"", token: str | None = None) -> bytes:
    """A whole request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    if body:
        lines.append("Content-Type: application/json")
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join(lines).encode() + END + body


class Connection(asyncio.Protocol):
    """Sends a request, reads the answer whole, checks its status, sends the next."""

    def __init__(self, first: bytes, following: Next, deadline: float) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._first = first
        self._following = following
        self._deadline = deadline
        self._buffer = b""
        self._count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._first)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer = self._buffer + data if self._buffer else data
        head = buffer.find(END)
        if head < 0:
            return
        at = buffer.find(LENGTH, 0, head) + len(LENGTH)
        size = int(buffer[at : buffer.index(b"\r", at)])
        if len(buffer) < head + len(END) + size:
            return
        self._buffer = b""
        if buffer[9:10] != b"2":
            self._fail(Trouble(buffer[:600].decode(errors="replace")))
            return
        self._count += 1
        again = self._following(buffer[head + len(END) :]) if time.perf_counter() < self._deadline else None
        if again is None:
            self._transport.close()
            if not self.ended.done():
                self.ended.set_result(self._count)
        else:
            self._transport.write(again)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(Trouble(f"the connection was lost: {error}"))

    def _fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
        self._transport.close()


async def answers_a_second(
    port: int, first: bytes, *, connections: int, seconds: float, following: Callable[[], Next] | None = None
) -> float:
    """Answers a second over so many connections that stay open. Without `following` the same request is sent again."""
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()

    def connect() -> Connection:
        return Connection(first, following() if following else lambda _: first, begin + seconds)

    with awake(loop):
        lines = await asyncio.gather(*(loop.create_connection(connect, "127.0.0.1", port) for _ in range(connections)))
        total = sum(await asyncio.gather(*(line[1].ended for line in lines)))
        return total / (time.perf_counter() - begin)


@contextmanager
def awake(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Keep the loop from sleeping: it always has something left to do, so it only looks whether something has come."""
    wanted = True

    def again() -> None:
        if wanted:
            loop.call_soon(again)

    again()
    try:
        yield
    finally:
        wanted = False
