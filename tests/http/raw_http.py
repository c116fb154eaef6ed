"""A client that sends what it is told, byte for byte, and `accoda serve` as a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec


class Answer(NamedTuple):
    """What came back. `status` 0: the connection was closed without an answer. `open`: it can be used again."""

    status: int
    headers: dict[str, str]
    body: bytes
    open: bool = False

    @property
    def detail(self) -> str:
        return str(msgspec.json.decode(self.body)["detail"])


def request(
    method: str, path: str, body: bytes | None = None, *, host: str | None = "localhost", **headers: str
) -> bytes:
    """The bytes of a request. `_` in a header's name stands for `-`."""
    lines = [f"{method} {path} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host}")
    if body is not None:
        headers = {"Content_Type": "application/json", "Content_Length": str(len(body)), **headers}
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def talk(port: int, *parts: bytes | Iterable[bytes], timeout: float = 20.0, stubborn: bool = False) -> Answer:
    """Send the parts, however the other side takes it, and read one answer. `stubborn`: go on sending after that."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        # Beside the reading, as a browser does it: a client that only sends does not see that it was answered long ago.
        sender = threading.Thread(target=_send, args=(connection, parts), daemon=True)
        sender.start()
        answer = read_answer(connection)
        if stubborn:
            sender.join(timeout)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        sender.join(timeout)
    return answer


def _send(connection: socket.socket, parts: Iterable[bytes | Iterable[bytes]]) -> None:
    with contextlib.suppress(OSError):
        for part in parts:
            for piece in [part] if isinstance(part, bytes) else part:
                connection.sendall(piece)


def read_answer(connection: socket.socket) -> Answer:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = _read(connection)
        if not piece:
            return Answer(0, {}, data)
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = int(headers.get("content-length", "0"))
    while len(body) < length and (piece := _read(connection)):
        body += piece
    return Answer(int(first.split()[1]), headers, body, headers.get("connection") != "close")


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except (ConnectionResetError, BrokenPipeError):
        return b""


class Served(NamedTuple):
    """A service in a process of its own."""

    port: int
    process: subprocess.Popen[str]
    log: Path

    def memory(self, what: str = "VmRSS") -> int:
        """Bytes of it that are in memory; VmHWM: that were at most."""
        found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


@contextlib.contextmanager
def serving(folder: Path, *words: str) -> Iterator[Served]:
    """`accoda serve --port 0 …` until the end of the block."""
    log = folder / "service.log"
    command = [sys.executable, "-m", "accoda", "serve", "--port", "0", *words]
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}  # it would break the line
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True, cwd=folder, env=environ)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.match(r"Accoda serves http://\S+:(\d+) \(docs: /docs\), store \S+$", line)
        assert found is not None, line + log.read_text()
        yield Served(int(found[1]), process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(15)
        process.stdout.close()
