"""The bare Tarantool: the same stored functions over a blocking socket, without receipts."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import msgspec

from accoda.storage.tarantool import client
from accoda.storage.tarantool.address import GREETING_SIZE, address_of
from benchmarks.raw.shape import PAYLOAD, Leases


class _Job(msgspec.Struct, array_like=True, gc=False):
    """The first fields of a job's tuple; the decoder passes over the rest."""

    id: int
    queue: int
    state: int
    data: msgspec.Raw
    rank: Any
    cost: Any
    key: Any
    attempts: int
    created_at: Any
    start_time: Any
    prev_start_time: Any
    waiters: Any
    keep_for: Any
    worker: Any
    taken_at: int


_JOBS = msgspec.msgpack.Decoder(tuple[list[_Job]])
ANY = msgspec.msgpack.Decoder(list[Any])


def _call(function: str, args: tuple[Any, ...]) -> bytes:
    return client.packet(client.CALL, 1, client.call_body(function, args))


class BareTarantool:
    """One call at a time over a blocking socket."""

    def __init__(self, url: str) -> None:
        address = address_of(urlsplit(url))
        self._socket = socket.create_connection((address.host, address.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = self._receive(GREETING_SIZE)
        self.ask(client.packet(client.AUTH, 1, client.auth_body(address, greeting)), ANY)

    def call(self, function: str, args: tuple[Any, ...], decoder: msgspec.msgpack.Decoder[Any]) -> Any:
        return self.ask(_call(function, args), decoder)

    def eval(self, script: str, args: tuple[Any, ...]) -> Any:
        return self.ask(client.packet(client.EVAL, 1, client.eval_body(script, args)), ANY)

    def ask(self, request: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
        self._socket.sendall(request)
        packet = memoryview(self._receive(client.length_at(self._receive(client.PREFIX_SIZE), 0)))
        code, _, body = client.header_of(packet)
        return client.answer_of(code, packet[body:], decoder) if len(packet) > body + 1 else None

    async def close(self) -> None:
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ConnectionError("the server closed the connection")
        return data


class RawTarantool(BareTarantool):
    """Accoda's functions; the application must be installed."""

    def __init__(self, url: str, queue: str, levels: int) -> None:
        super().__init__(url)
        self._queue = queue
        self._levels = levels
        self._requests: dict[int, bytes] = {}
        self.rows: list[_Job] = []  # what the last take gave

    async def enqueue(self, count: int) -> None:
        if count not in self._requests:
            jobs = [(1, PAYLOAD, float(number % self._levels)) for number in range(count)]
            self._requests[count] = _call("accoda_enqueue", (None, None, (self._queue,), jobs))
        self.ask(self._requests[count], ANY)

    def put(self, data: bytes) -> None:
        """One job with this data."""
        self.call("accoda_enqueue", (None, None, (self._queue,), [(1, data, 0.0)]), ANY)

    def listen(self, seen: int | None, seconds: float) -> int:
        """Until the queue was touched since the count `seen`; the count now."""
        count: int = self.call("accoda_listen", (None, (self._queue,), seen, seconds), ANY)[0]
        return count

    async def take(self, count: int) -> Leases:
        args = (None, None, self._queue, count, 60_000, None, "bench")
        self.rows = self.call("accoda_take", args, _JOBS)
        return [(row.id, row.taken_at) for row in self.rows]

    @property
    def records(self) -> list[bytes]:
        """The data of what the last take gave."""
        return [client.bytes_of(row.data) for row in self.rows]

    async def settle(self, leases: Leases) -> None:
        outcomes = [(1, id, 0, taken_at) for id, taken_at in leases]
        self.call("accoda_settle", (None, None, (self._queue,), outcomes, ()), ANY)
