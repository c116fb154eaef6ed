"""The bare Redis: the same scripts over a blocking socket, one command at a time."""

from __future__ import annotations

import secrets
import socket
from typing import Any

import hiredis

from accoda.storage.redis.scripts import script
from benchmarks.raw.shape import PAYLOAD, Leases

_ID_WIDTH = 14  # how many leading digits of an id name its bucket


class RawRedis:
    def __init__(self, port: int, queue: str, levels: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._queue = queue
        self.base = f"accoda:{queue}"
        self._levels = levels
        self._name = f"raw-{secrets.token_hex(4)}"  # calls and batches of two connections must not be taken for one's
        self._shared = (f"accoda:calls:{self._name}", "accoda:ids", "accoda:queues")
        self._calls = 0
        self._seen = ""
        self.records: list[bytes] = []  # what the last take gave; it is settled before the next
        self._taken_at = b""

    async def enqueue(self, count: int) -> None:
        jobs: list[Any] = [f"{count},1,-,,0,,,", *[PAYLOAD] * count]
        if self._levels > 1:
            jobs = [each for number in range(count) for each in (f"1,1,-,,{number % self._levels},,,", PAYLOAD)]
        self._run("enqueue", (*self._shared, self.base), 1, 0, 0, self._queue, *jobs)

    def put(self, data: bytes) -> None:
        """One job with this data."""
        self._run("enqueue", (*self._shared, self.base), 1, 0, 0, self._queue, "1,1,-,,0,,,", data)

    async def take(self, count: int) -> Leases:
        batch = f"{self._name}.{self._calls + 1}"
        keys = ("accoda:queues", self.base)
        *self.records, _, self._taken_at = self._run("take", keys, batch, count, 60_000, "", "raw")
        return [(record[:16], 0) for record in self.records]

    async def settle(self, leases: Leases) -> None:
        keys = (*self._shared, "accoda:outbox", self.base)
        held = self._taken_at + b":" + b"".join([id for id, _ in leases])
        refused = self._run("settle", keys, 1, 0, 0, "", "", len(leases), 0, "1d0", held)
        assert refused == b""

    async def close(self) -> None:
        self._socket.close()

    def _run(self, name: str, keys: tuple[str, ...], *args: Any) -> Any:
        self._calls += 1
        call = ("", "")
        if keys[0] == self._shared[0]:  # the server remembers the answer until the next call says that it was seen
            call = (str(self._calls), self._seen)
            self._seen = call[0]
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
