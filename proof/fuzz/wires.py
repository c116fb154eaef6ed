"""What servers and child processes say. A connection that hears nonsense ends, and its callers are told."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from accoda.budget.report import BudgetReport
from accoda.model import Job, Lease, NewJob
from accoda.retry import Failed, Finished
from accoda.runtime.runners import wire
from proof.fuzz.target import Target

_RESP = (
    *(
        b"+OK\r\n",
        b"-ERR x\r\n",
        b"-\xff\xfe\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"$5\r\nhello\r\n",
        b"*2\r\n",
        b"*-1\r\n",
        b"\r\n",
    ),
    *(
        b"$4294967295\r\n",
        b"*4294967295\r\n",
        b"$-9\r\n",
        b":99999999999999999999\r\n",
        b"%1\r\n",
        b"~1\r\n",
        b">1\r\n",
        b"_\r\n",
    ),
    *(
        b"#t\r\n",
        b",1.5\r\n",
        b",nan\r\n",
        b"(12345678901234567890\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"!3\r\nERR\r\n",
        b"|1\r\n",
        b"\0",
    ),
)

# hiredis reserves the memory for as many replies as a server announces. A server that announces a billion could send
# them, too: against that there is no help here.
_HUGE = re.compile(rb"[*%~>|][0-9]{7,9}[^0-9]")


def targets() -> list[Target]:
    found = [_from_child(), _to_child()]
    with contextlib.suppress(ModuleNotFoundError):
        found.append(_redis())
    return [*found, _tarantool()]


class NoNetwork(asyncio.Transport):
    """A transport that leads nowhere; it tells its connection of its end at once, as a real one does a moment later."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._over = False

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._protocol.connection_lost(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def _settled(waiting: list[asyncio.Future[Any]]) -> None:
    """Every answer that came is looked at, so that no error is left over."""
    for future in waiting:
        if future.done() and not future.cancelled():
            future.exception()


# -- child processes


def _from_child() -> Target:
    def hear(data: bytes) -> object:
        message = wire.decode_in_worker(data)
        if isinstance(message, wire.Said):
            return wire.result_of(message)
        return message

    errors: list[BaseException] = [
        ValueError("no"),
        KeyError("k"),
        OSError(2, "gone"),
        SystemExit(3),
        UnicodeError("x"),
    ]
    messages: list[wire.ToWorker] = [
        *(wire.said(7, Failed(error)) for error in errors),
        wire.said(7, Finished(b"result")),
        wire.Follow(7, NewJob("emails", b"x", rank=1.0, key="k")),
        wire.Reported(BudgetReport(at=0, budget="keepa", left=12, refill_in=30.0)),
        wire.Broken("why"),
        wire.Began(),
    ]
    tokens = (
        b"ValueError",
        b"RetryLater",
        b"accoda.errors.BuryJob",
        b"os.system",
        b"builtins.eval",
        b"\xa1\x00",
        b"kinds",
    )
    return Target(
        "wire: child to worker", hear, [wire.encode(message) for message in messages], (wire.Garbled,), tokens
    )


def _to_child() -> Target:
    job = Job(1, "q", b"x", 0.0, 0, None, 0, 1, 2, None, 0, Lease("q", 1, 0, 0))
    messages: list[wire.ToChild] = [
        wire.Hello(["/a"], "shop.jobs", "send", {"payload": 5}),
        wire.Work("q", [job, job], 5),
        wire.News(True, [1, 2]),
    ]
    return Target("wire: worker to child", wire.decode_in_child, [wire.encode(m) for m in messages], (wire.Garbled,))


# -- Redis


def _redis() -> Target:
    from accoda.storage.redis.client import Connection

    def hear(data: bytes) -> None:
        if _HUGE.search(data):
            return
        connection = Connection(10.0)
        connection.connection_made(NoNetwork(connection))
        waiting = [connection.send("PING") for _ in range(2)]
        try:
            _feed(connection.data_received, data)
        finally:
            connection.abort("the end")
            _settled(waiting)
        assert all(future.done() for future in waiting), "a caller would wait for ever"

    seeds = [
        b"+OK\r\n:1\r\n",
        b"*3\r\n$3\r\nabc\r\n:5\r\n*1\r\n$-1\r\n+x\r\n",
        b"-MOVED 3999 127.0.0.1:6381\r\n+PONG\r\n",
    ]
    return Target("wire: Redis", hear, seeds, (), _RESP)


def _feed(receive: Callable[[bytes], object], data: bytes) -> None:
    """In two pieces, as a network may."""
    receive(data[: len(data) // 2])
    receive(data[len(data) // 2 :])


# -- Tarantool


def _tarantool() -> Target:
    from accoda.storage.tarantool.address import Address
    from accoda.storage.tarantool.client import Connection

    decoder = msgspec.msgpack.Decoder(list[tuple[int, str, bytes | None]])

    def hear(data: bytes) -> None:
        connection = Connection(Address("host", 1, "guest", ""))
        connection._transport = NoNetwork(connection)  # `connection_made` would ask a socket for its options
        greeting = connection._greeting
        waiting = [connection.call("take", (), decoder) for _ in range(2)]
        try:
            connection.data_received(b"Tarantool".ljust(128))
            _feed(connection.data_received, data)
        finally:
            connection.close()
            _settled([greeting, *waiting])
        assert all(future.done() for future in waiting), "a caller would wait for ever"

    def packet(header: dict[int, int], body: dict[int, Any]) -> bytes:
        content = msgspec.msgpack.encode(header) + msgspec.msgpack.encode(body)
        return b"\xce" + len(content).to_bytes(4) + content

    good = packet({0: 0, 1: 1}, {0x30: [[(1, "q", b"x")]]})
    seeds = [good + packet({0: 0, 1: 2}, {0x30: [None]}), packet({0: 0x8003, 1: 1}, {0x31: "no"}), good]
    tokens = (
        b"\xce\xff\xff\xff\xff",
        b"\xce\x00\x00\x00\x00",
        b"\x82\x00\x00\x01\x01",
        b"\x81\x30",
        b"\x81\x31",
        b"\x8f",
    )
    return Target("wire: Tarantool", hear, seeds, (), tokens)
