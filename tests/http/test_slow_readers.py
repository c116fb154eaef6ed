"""Clients that ask and do not read: they cost a bounded amount, are closed in the end, and never hold the service."""

from __future__ import annotations

import contextlib
import select
import socket
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from proof.service import ServiceRunner
from raw_http import Served, request, serving, talk
from test_head_bounds import POST, Connection, Listener, Talk

from accoda import App
from accoda.http.security.connections import Connections, Output
from accoda.http.security.head_bounds import BoundedHeads

LARGE = request("GET", "/openapi.json") * 20
WHOLE = request("GET", "/static/accoda.js") * 400
"""Answers that are written in one piece: a connection whose client does not read stops between two of them."""
PLACE = ("--url", "memory://", "--no-system-jobs")


@contextlib.contextmanager
def slow_readers(port: int, count: int, asked: bytes = LARGE) -> Iterator[list[socket.socket]]:
    """Connections that ask for 20 large documents, or for something else, and read nothing."""
    with contextlib.ExitStack() as stack:
        readers = []
        for _ in range(count):
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", port))
            with contextlib.suppress(ConnectionError):  # refused
                reader.sendall(asked)
            readers.append(reader)
        yield readers


def sockets_of(served: Served) -> int:
    found = 0
    for link in Path(f"/proc/{served.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(link.readlink()).startswith("socket:")
    return found


def unsent(port: int) -> int:
    """Bytes that the system holds for clients of this port that do not read."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(line[4].partition(":")[0], 16) for line in lines if line[1].endswith(f":{port:04X}"))


def wait_until_stalled(port: int) -> None:
    before = 0
    while not before or unsent(port) != before:
        before = unsent(port)
        for _ in range(10):  # turns of its loop
            talk(port, request("GET", "/health/live"))


def test_unread_answers_do_not_keep_it_from_ending(tmp_path: Path) -> None:
    with serving(tmp_path, *PLACE) as served, slow_readers(served.port, 1), slow_readers(served.port, 2, WHOLE):
        wait_until_stalled(served.port)
        began = time.monotonic()
        served.process.terminate()
        assert served.process.wait(20) == 0
        assert time.monotonic() - began < 7  # five, on a machine that does other things too
    assert "Traceback" not in served.log.read_text()


def test_300_slow_readers_cost_little_and_others_are_served(tmp_path: Path) -> None:
    # On asyncio's own loop, which copies what it cannot send; uvloop keeps a reference.
    (tmp_path / "uvloop.py").write_text("raise ImportError")
    with serving(tmp_path, *PLACE) as served:
        talk(served.port, request("GET", "/openapi.json"))
        before = served.memory()
        with slow_readers(served.port, 300):
            wait_until_stalled(served.port)
            assert talk(served.port, request("GET", "/health/live")).status == 200
            assert unsent(served.port) < 300 * 256 * 1024  # the system would take some MB of each
            # Sent whole, each document would be in the buffer of its connection: more than 100 MB.
            assert served.memory("VmHWM") - before < 300 * 120 * 1024
        served.process.kill()  # it is another test that it ends
        served.process.wait()


def _begins(reader: socket.socket) -> bytes:
    try:
        return reader.recv(12)
    except ConnectionError:
        return b""


def test_connections_beyond_the_most_get_503_and_are_closed(tmp_path: Path) -> None:
    with serving(tmp_path, *PLACE, "--max-connections", "40") as served:
        before = sockets_of(served)
        with slow_readers(served.port, 300) as readers:
            late = talk(served.port, b"")
            assert (late.status, late.open) == (503, False)
            assert late.headers["retry-after"] == "1"
            served_ones = [reader for reader in readers if _begins(reader) == b"HTTP/1.1 200"]
            assert len(served_ones) == 20  # one address has half of them
        while sockets_of(served) > before:  # they have hung up
            time.sleep(0.01)
        assert talk(served.port, request("GET", "/health/live")).status == 200


def test_a_connection_whose_output_does_not_move_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connections, "stalled_after", 0.3)
    with ServiceRunner(App("memory://")) as service, slow_readers(service.port, 5) as readers:
        for reader in readers:
            watch = select.poll()
            watch.register(reader, 0)  # POLLHUP and POLLERR alone: it reads nothing
            assert watch.poll(20_000)


@pytest.mark.parametrize(
    ("moves", "stalled"),
    [
        ([(0, 0)] * 4, 0),  # nothing to send
        ([(100, 0), (0, 0), (0, 0), (0, 0)], 30),  # nothing is read
        ([(100, 0), (0, 1), (0, 0), (0, 0)], 20),  # a byte is read, then nothing
        ([(100, 0), (10, 10), (10, 10), (10, 10)], 0),  # the buffer is as large as before, and all of it moves
        ([(100, 0), (10, 0), (10, 0), (10, 0)], 30),  # more is written behind what is not read
    ],
)
def test_output_is_stalled_for_as_long_as_nothing_of_it_is_sent(moves: list[tuple[int, int]], stalled: float) -> None:
    class Buffered(Connection):
        size = 0

        def get_write_buffer_size(self) -> int:
            return self.size

    transport = Buffered()
    output = Output(transport)
    for place, (written, sent) in enumerate(moves):
        output.write(b"x" * written)
        transport.size += written - sent
        found = output.stalled_for(1000.0 + 10 * place)
    assert found == stalled


CHUNKED = (
    POST.partition(b"content-length")[0]
    + b"transfer-encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (b'{"queue":', b"\r\n\r\n", b'"emails"}'))
    + b"0\r\n\r\n"
)


@pytest.mark.parametrize("size", [1, 3, 50, 100_000])
async def test_requests_that_are_sent_ahead_are_answered_in_their_order(size: int) -> None:
    talk = Talk(BoundedHeads, listener := Listener())
    data = (POST + CHUNKED + request("GET", "/health/live") + b"\r\n") * 4
    for at in range(0, len(data), size):
        talk.protocol.data_received(data[at : at + size])
    assert (await talk.say(b"")).count(b"HTTP/1.1 200 ") == 12
    assert [len(body) for body in listener.bodies] == [18, 22, 0] * 4
    talk.hang_up()


async def test_requests_that_are_sent_ahead_wait_as_the_bytes_that_they_are() -> None:
    talk = Talk(BoundedHeads, listener := Listener())
    ahead = request("GET", "/") * 5000
    tracemalloc.start()
    try:
        talk.protocol.data_received(POST + ahead)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(ahead)  # a record of each would be 50 times as large
    finally:
        tracemalloc.stop()
    assert talk.connection.is_paused  # nothing more is read
    assert (await talk.say(b"")).count(b"HTTP/1.1 200 ") == len(listener.asked) == 5001
    assert not talk.connection.is_paused
    talk.hang_up()
