"""The bare Tarantool: the same stored functions over a blocking socket, without receipts."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import msgspec

from accoda.storage.tarantool import wire
from accoda.storage.tarantool.address import address_of
from benchmarks.raw.shape import PAYLOAD, Leases


class _Id(msgspec.Struct, array_like=True, gc=False):
    """The first fields of a job's tuple; the decoder passes over the rest."""

    id: int


_IDS = msgspec.msgpack.Decoder(tuple[list[_Id]])
_ANY = msgspec.msgpack.Decoder(list[Any])


class RawTarantool:
    """One call at a time over a blocking socket; the application must be installed."""

    def __init__(self, url: str, queue: str, levels: int) -> None:
        self._queue = queue
        self._levels = levels
        address = address_of(urlsplit(url))
        self._socket = socket.create_connection((address.host, address.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = self._receive(wire.GREETING_SIZE)
        self._ask(wire.auth(1, address.user, address.password, greeting), _ANY)
        self._requests: dict[int, bytes] = {}

    async def enqueue(self, count: int) -> None:
        if count not in self._requests:
            jobs = [(1, PAYLOAD, float(number % self._levels)) for number in range(count)]
            self._requests[count] = wire.call(1, "accoda_enqueue", (None, None, (self._queue,), jobs))
        self._ask(self._requests[count], _ANY)

    async def take(self, count: int) -> Leases:
        request = wire.call(1, "accoda_take", (None, None, self._queue, count, 60_000, None, "bench"))
        return [(row.id, 0) for row in self._ask(request, _IDS)]

    async def settle(self, leases: Leases) -> None:
        outcomes = [(1, id, attempts) for id, attempts in leases]
        self._ask(wire.call(1, "accoda_settle", (None, None, (self._queue,), outcomes, ())), _ANY)

    async def close(self) -> None:
        self._socket.close()

    def _ask(self, request: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
        self._socket.sendall(request)
        packet = memoryview(self._receive(wire.length_at(self._receive(wire.PREFIX_SIZE), 0)))
        code, _, body = wire.header_of(packet)
        return wire.body_of(code, packet[body:], decoder) if len(packet) > body + 1 else None

    def _receive(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ConnectionError("the server closed the connection")
        return data
