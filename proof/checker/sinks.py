"""Where records go: a file that survives a `kill -9` of its writer, or memory.

A file is a row of frames: a mark, the length, a checksum, and the record as msgpack. Each frame is one write at the end
of the file (O_APPEND), which the kernel does not mix with another's. A writer that is killed in the middle leaves a
torn frame; the reader skips it and goes on at the next whole one, so a file may also be continued after a kill.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct as Layout
from typing import Protocol
from zlib import crc32

import msgspec

from proof.checker.records import Record, Start

_MARK = b"\xc1\xac"  # no msgpack value begins with c1
_HEAD = Layout(">2sII")


class Sink(Protocol):
    """Takes records, from any thread."""

    def put(self, record: Record) -> None: ...


class MemorySink:
    """Keeps records in a list."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def put(self, record: Record) -> None:
        self.records.append(record)


class FileSink:
    """Appends records to a file. What `put` has taken is with the kernel: it is there though the process be killed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._encode = msgspec.msgpack.Encoder().encode

    def put(self, record: Record) -> None:
        try:
            body = self._encode(record)
        except (TypeError, ValueError, OverflowError):
            if not isinstance(record, Start):
                raise
            # Bad input that no file can hold. The store will refuse it; that the call was made is kept.
            body = self._encode(Start(record.client, record.number, record.at, record.name))
        frame = _HEAD.pack(_MARK, len(body), crc32(body)) + body
        written = os.write(self._file, frame)
        if written != len(frame):
            raise OSError(f"{self.path}: only {written} of {len(frame)} bytes were written; is the disk full?")

    def close(self) -> None:
        """Close the file; a second time does no harm."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> FileSink:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_file(path: str | os.PathLike[str]) -> Iterator[Record | None]:
    """The records of a file in the order of their writing, and None for each torn place."""
    data = Path(path).read_bytes()
    decode = msgspec.msgpack.Decoder(Record).decode
    at, size = 0, _HEAD.size
    while at < len(data):
        if len(data) - at >= size:
            mark, length, check = _HEAD.unpack_from(data, at)
            body = data[at + size : at + size + length]
            if mark == _MARK and len(body) == length and crc32(body) == check:
                at += size + length
                with suppress(msgspec.ValidationError):  # a call with bad input, which was refused: nothing happened
                    yield decode(body)
                continue
        yield None
        at = data.find(_MARK, at + 1)
        if at < 0:
            return
