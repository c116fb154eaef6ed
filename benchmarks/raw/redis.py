"""The bare Redis: the same scripts over a blocking socket, one command at a time."""

from __future__ import annotations

import socket
from typing import Any

import hiredis

from accoda.storage.redis.scripts import script
from benchmarks.raw.shape import PAYLOAD, Leases

_SHARED = ("accoda:calls:raw", "accoda:ids", "accoda:queues")
_ID_WIDTH = 14  # how many leading digits of an id name its bucket


class RawRedis:
    def __init__(self, port: int, queue: str, levels: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._queue = queue
        self._base = f"accoda:{{{queue}}}:{queue}"
        self._levels = levels
        self._calls = 0

    async def enqueue(self, count: int) -> None:
        jobs: list[Any] = []
        for number in range(count):
            jobs += ("1", str(float(number % self._levels)), b",,\0" + PAYLOAD)
        self._run("enqueue", (*_SHARED, self._base), 1, 0, 0, count, self._queue, *jobs)

    async def take(self, count: int) -> Leases:
        self._calls += 1
        reply = self._run(
            "take", ("accoda:queues", self._base), f"{self._queue}.{self._calls}", count, 60_000, "", "raw"
        )
        return [(record[:16], 0) for record in reply[:-1:2]]

    async def settle(self, leases: Leases) -> None:
        outcomes: list[Any] = []
        for id, attempts in leases:
            outcomes += ("1d", id, attempts)
        keys = (*_SHARED, "accoda:outbox", self._base)
        refused = self._run("settle", keys, 1, 0, 0, "", len(leases), *outcomes)
        assert refused == b""

    async def close(self) -> None:
        self._socket.close()

    def _run(self, name: str, keys: tuple[str, ...], *args: Any) -> Any:
        self._calls += 1
        call = (f"{self._queue}.{self._calls}", "") if keys[0] == _SHARED[0] else ("", "")
        what = script(name)
        rest = (len(keys), *keys, "", *call, _ID_WIDTH, *args)
        try:
            return self._ask("EVALSHA", what.sha, *rest)
        except hiredis.ReplyError:
            return self._ask("EVAL", what.source, *rest)

    def _ask(self, *command: Any) -> Any:
        self._socket.sendall(hiredis.pack_command(command))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(1 << 20))
        if isinstance(reply, Exception):
            raise reply
        return reply
