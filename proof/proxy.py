"""A TCP proxy that does what a bad network does to the connections between clients and one server.

    with Proxy(server.port) as proxy:
        store = await open_storage(f"redis://127.0.0.1:{proxy.port}/0")
        with proxy.during(cut=True):
            ...  # every connection is reset, and new ones are refused

It runs in a thread of its own, so it works while the tests' event loop is busy, and its methods may be called from any
thread. There is one server behind it: the nodes of a Redis Cluster, and the master that Sentinels name, tell clients
their own addresses, so that clients go past any proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close without goodbye


@dataclass(frozen=True)
class NetworkConditions:
    """What happens to connections from now on; the default changes nothing.

    What is swallowed is gone: a connection that lost bytes stays silent for ever, also on a good network, like one
    that a firewall has forgotten. What is held is passed on later, like packets that are sent again.
    """

    cut: bool = False  # connections are reset, new ones are refused
    swallow_requests: bool = False  # what clients send vanishes
    swallow_replies: bool = False  # what the server sends vanishes
    hold: bool = False  # nothing gets through until the conditions change
    delay: tuple[float, float] = (0.0, 0.0)  # seconds, at random between the two, for each chunk each way
    bandwidth: int | None = None  # bytes a second of each connection, each way


BLACK_HOLE = NetworkConditions(swallow_requests=True, swallow_replies=True)
REPLIES_VANISH = NetworkConditions(swallow_replies=True)


class Proxy:
    """`port` leads to `server_port` on this machine."""

    def __init__(self, server_port: int, seed: int = 0) -> None:
        self.server_port = server_port
        self.accepted = 0  # connections ever
        self.torn = 0  # replies that were torn
        self._random = random.Random(seed)
        self._conditions = NetworkConditions()
        self._tear: int | None = None
        self._links: set[_Link] = set()
        self._reserved = _bound(0)  # never listens: it only keeps the port ours while nothing listens there
        self.port: int = self._reserved.getsockname()[1]
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()  # replaced by each change of conditions
        self._thread = threading.Thread(target=self._loop.run_forever, name="accoda-proxy", daemon=True)

    # -- for any thread

    def start(self) -> Self:
        self._thread.start()
        self._run(self._set(NetworkConditions()))
        return self

    def close(self) -> None:
        """A second time does no harm."""
        if not self._thread.is_alive():
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reserved.close()

    def set(self, conditions: NetworkConditions) -> None:
        """From now on."""
        self._run(self._set(conditions))

    @contextlib.contextmanager
    def during(self, conditions: NetworkConditions | None = None, **changes: Any) -> Iterator[None]:
        """For a while."""
        self.set(replace(conditions or NetworkConditions(), **changes))
        try:
            yield
        finally:
            self.set(NetworkConditions())

    def reset(self) -> None:
        """Break every connection, once."""
        self._run(self._reset())

    def tear_next_reply(self, after: int) -> None:
        """Pass on `after` bytes of the next reply, at most all but one of them, then break its connection."""
        self._run(self._arm(after))

    @property
    def connections(self) -> int:
        """Connections of clients at this moment."""
        return len(self._links)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    # -- in the proxy's own thread, so that nothing below needs a lock

    async def _set(self, conditions: NetworkConditions) -> None:
        self._conditions = conditions
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if conditions.cut:
            await self._stop_listening()
            await self._reset()
        elif self._listener is None:
            self._listener = _bound(self.port)
            self._listener.listen(1024)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _arm(self, after: int) -> None:
        self._tear = after

    async def _end(self) -> None:
        await self._stop_listening()
        links = list(self._links)
        await self._reset()
        await asyncio.gather(*(link.ended for link in links), return_exceptions=True)

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def _reset(self) -> None:
        for link in list(self._links):
            link.reset()

    def _accept(self, listener: socket.socket) -> None:
        """One connection. Not a task: one that is cancelled may have accepted a socket that nobody closes then."""
        try:
            client, _ = listener.accept()
        except BlockingIOError:  # it has gone again
            return
        client.setblocking(False)
        self.accepted += 1
        link = _Link(self, client)
        self._links.add(link)
        link.ended.add_done_callback(partial(self._forget, link))

    def _forget(self, link: _Link, ended: asyncio.Task[None]) -> None:
        self._links.discard(link)
        link.client.close()  # here, since a task that is cancelled before its first step comes to no `finally`

    def take_tear(self) -> int | None:
        """How much of this reply may pass, if it is the one to be torn."""
        tear, self._tear = self._tear, None
        if tear is not None:
            self.torn += 1
        return tear

    def nap(self) -> float:
        return self._random.uniform(*self._conditions.delay)

    @property
    def now(self) -> NetworkConditions:
        return self._conditions

    async def change(self) -> None:
        """Return when the conditions change."""
        await self._changed.wait()


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self.client = client
        self._writers: list[asyncio.StreamWriter] = []
        self._silent = False  # bytes were swallowed: what came after them would make no sense
        self.ended: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._carry())

    def reset(self) -> None:
        self.ended.cancel()

    async def _carry(self) -> None:
        passing: list[asyncio.Task[None]] = []
        try:
            reader, writer = await asyncio.open_connection(sock=self.client)
            self._writers.append(writer)
            there, far = await asyncio.open_connection("127.0.0.1", self._proxy.server_port)
            self._writers.append(far)
            passing = [
                asyncio.create_task(self._pass(reader, far, replies=False)),
                asyncio.create_task(self._pass(there, writer, replies=True)),
            ]
            # Whichever end hangs up first: the other is told by the end of its connection.
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            # A firewall does not pass on the goodbye of a connection that it has forgotten; in the end the peer does.
            while self._silent and self._proxy.now != NetworkConditions():
                await self._proxy.change()
        except OSError:
            pass
        finally:
            for each in passing:
                each.cancel()
            for writer in self._writers:
                _hang_up(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        proxy = self._proxy
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                while proxy.now.hold:
                    await proxy.change()
                conditions = proxy.now
                if self._vanishes(conditions, replies):
                    continue
                if replies and (tear := proxy.take_tear()) is not None:
                    writer.write(data[: min(tear, len(data) - 1)])
                    await writer.drain()
                    return
                await self._send(data, writer, conditions)

    def _vanishes(self, conditions: NetworkConditions, replies: bool) -> bool:
        if conditions.cut:  # its connection is about to be reset
            return True
        if conditions.swallow_replies if replies else conditions.swallow_requests:
            self._silent = True
        # Of a connection that lost something nothing passes any more, but for requests while it is only replies that
        # vanish: then the server still hears and does what it is asked.
        return self._silent and (replies or conditions.swallow_requests or not conditions.swallow_replies)

    async def _send(self, data: bytes, writer: asyncio.StreamWriter, conditions: NetworkConditions) -> None:
        if conditions.delay != (0.0, 0.0):
            await asyncio.sleep(self._proxy.nap())
        if conditions.bandwidth is None:
            writer.write(data)
            await writer.drain()
            return
        step = max(1, conditions.bandwidth // 100)
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(len(piece) / conditions.bandwidth)


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made


def _hang_up(writer: asyncio.StreamWriter) -> None:
    """Reset: the other end is told at once, whatever was still to be sent."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
