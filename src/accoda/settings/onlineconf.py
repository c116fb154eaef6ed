"""Settings from an OnlineConf module, in either format that its updater writes.

MODULE.cdb    D. J. Bernstein's constant database, 32 bit: a header of 256 (position, slots) pairs that point at hash
              tables; between the two, records of key length, value length, key, value. A key is the path; a value is
              one byte for its type, `s` text or `j` JSON, and then the text.
MODULE.conf   a line for each value, `path text` or `path:JSON text`; comments begin with `#`; the last line is `#EOF`.

A JSON value may be a whole table of settings. The file is shared with other programs, so only values under our own path
are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import msgspec

from accoda.errors import SettingsError
from accoda.settings.entries import Entry, flatten
from accoda.settings.paths import ROOT, Path

_HEADER = Struct("<512I")
_PAIR = Struct("<II")
_MARK = ROOT[0].encode()


def records(data: bytes, file: str) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of every record of a CDB file, in the order of the file.

    Every length is checked against the file before it is used, and every step goes forward by at least 8 bytes, so no
    file can lead outside or into a loop.
    """
    if len(data) < _HEADER.size:
        raise SettingsError(
            f"{file}: not a complete CDB file: its header has {_HEADER.size} bytes, this has {len(data)}"
        )
    header = _HEADER.unpack_from(data)
    end = len(data)
    tables = [(at, slots) for at, slots in zip(header[::2], header[1::2], strict=True) if slots]
    for at, slots in tables:
        if at < _HEADER.size or at + slots * _PAIR.size > len(data):
            raise SettingsError(f"{file}: not a complete CDB file: a table goes beyond the end of the file")
        end = min(end, at)
    at = _HEADER.size
    while tables and at < end:
        key_at = at + _PAIR.size
        key_size, value_size = _PAIR.unpack_from(data, at) if key_at <= end else (end, end)
        value_at = key_at + key_size
        at = value_at + value_size
        if at > end:
            raise SettingsError(f"{file}: a damaged CDB file: a record reaches into the tables")
        yield data[key_at:value_at], data[value_at:at]


def read_cdb(data: bytes, service: Path, file: str) -> list[Entry]:
    """The values of a `.cdb` module under `worker/queue`, with this service in front or none."""
    entries: list[Entry] = []
    source = f"onlineconf {file}"
    for key, value in records(data, file):
        path = _own(key, service) if _MARK in key else None
        if path is None:
            continue
        kind, text = value[:1], value[1:].decode("utf-8", "replace")
        if kind not in (b"s", b"j"):
            raise SettingsError(f"{source}: {'/'.join(path)[:120]} has a value of type {kind!r}; known are 's' and 'j'")
        entries += _entries(path, text, kind == b"j", source)
    return entries


def read_conf(data: bytes, service: Path, file: str) -> list[Entry]:
    """The values of a `.conf` module. A text may have several lines, so lines that set nothing are normal."""
    lines = data.split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines or lines[-1].strip() != b"#EOF":
        raise SettingsError(f"{file}: not complete: the last line of an OnlineConf module is #EOF")
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        words = line.split(maxsplit=1)
        if not words or words[0].startswith(b"#") or _MARK not in words[0]:
            continue
        key, is_json = words[0].removesuffix(b":JSON"), words[0].endswith(b":JSON")
        path = _own(key, service)
        if path is not None:
            text = words[1].decode("utf-8", "replace").rstrip("\r") if len(words) > 1 else ""
            entries += _entries(path, text, is_json, f"onlineconf {file}:{number}")
    return entries


def _own(key: bytes, service: Path) -> Path | None:
    """The path of a key, if it is ours."""
    path = tuple(key.decode("utf-8", "replace").strip("/").split("/"))
    for root in (ROOT, (*service, *ROOT)):
        # A path that ends above the root may hold all of it as JSON.
        if path[: len(root)] == root[: len(path)]:
            return path
    return None


def _entries(path: Path, text: str, is_json: bool, source: str) -> Iterator[Entry]:
    if not is_json:
        yield Entry(path, text, source)
        return
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SettingsError(f"{source}: {'/'.join(path)[:120]} is not valid JSON: {error}") from error
    if isinstance(value, dict):
        # null in OnlineConf means absent
        yield from (entry for entry in flatten(value, lambda _: source, path) if entry.raw is not None)
    elif value is not None:
        yield Entry(path, value, source)
