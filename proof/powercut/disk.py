"""A disk that forgets: what was not synced may or may not be there after a power cut.

The rules, which are those that SQLite's own Unix layer relies on:

- A write is seen by every reader at once and is on the disk only after the file's sync.
- At a cut each unsynced write survives whole, in part, or not at all, whatever became of the writes before and after
  it. The parts are sectors (512 bytes) or pages (4,096 bytes).
- Bytes inside an unsynced write may become garbage. Bytes outside of it never do ("powersafe overwrite", which
  SQLite's Unix layer reports for every disk, and which this one reports too).
- The length of a file is part of its content. A file that grew may keep its new length and not the bytes, which are
  then zeros or garbage.
- Names are entries of the folder. That a file was made or deleted is on the disk after the next sync of the folder: a
  delete that asks for it, or the first sync of a new log or journal, where SQLite's Unix layer does it too.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import apsw

SECTOR, PAGE = 512, 4096
_LOG_NAMES = ("-wal", "-journal")
Trouble = Callable[["Operation"], None]
"""Asked before each operation; what it raises is what SQLite gets, and the operation does not happen."""


class Operation(NamedTuple):
    """What is done to the disk: write, truncate, sync, create, delete; or read."""

    kind: str
    name: str
    offset: int = 0
    length: int = 0


class Fuse:
    """Cuts the power at the n-th operation of a kind."""

    def __init__(self, after: int, matches: Callable[[Operation], bool] = lambda operation: True) -> None:
        self._left = after
        self._matches = matches

    def blows(self, operation: Operation) -> bool:
        if self._matches(operation):
            self._left -= 1
        return self._left < 0


class SyncFailed(Exception):
    """Raise it from a `Trouble`: the kernel gives up, forgets that the data was dirty, and the next sync succeeds.

    `kept`: the data reached the disk all the same; otherwise none of it ever will.
    """

    def __init__(self, kept: bool = False) -> None:
        super().__init__(kept)
        self.kept = kept


class Content:
    """A file's bytes: as its readers see them, as the disk has them, and what lies between."""

    __slots__ = ("durable", "log", "now", "pending", "synced")

    def __init__(self, durable: bytes = b"", log: bool = False) -> None:
        self.now = bytearray(durable)
        self.durable = bytearray(durable)
        self.pending: list[tuple[int, bytes | None]] = []  # None: cut off at that offset
        self.log = log
        self.synced = bool(durable)  # the first sync of a new log is one of the folder too

    def change(self, offset: int, data: bytes | None) -> None:
        _apply(self.now, offset, data)
        self.pending.append((offset, data))

    def sync(self) -> None:
        for offset, data in self.pending:
            _apply(self.durable, offset, data)
        self.pending.clear()


class Disk:
    """One folder on one disk. Safe for several threads."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.off = False
        self.fuse: Fuse | None = None
        self.cut_at: Operation | None = None  # the one that did not happen any more
        self.lies: frozenset[str] = frozenset()  # of log, database, names: says "synced" and does nothing
        self.capacity: int | None = None  # bytes
        self.trouble: Trouble | None = None
        self.operations = 0
        self._trace = hashlib.sha256()
        self._names = {name: Content(data, name.endswith(_LOG_NAMES)) for name, data in (files or {}).items()}
        # What each name meant since the folder's last sync, the first being what the disk has.
        self._entries: dict[str, list[Content | None]] = {name: [found] for name, found in self._names.items()}
        self._lock = threading.RLock()

    @property
    def trace(self) -> str:
        """A digest of all operations so far: two runs that are the same have the same."""
        return self._trace.hexdigest()[:16]

    def exists(self, name: str) -> bool:
        return name in self._names

    def size(self, name: str) -> int:
        found = self._names.get(name)
        return 0 if found is None else len(found.now)

    def open(self, name: str, log: bool) -> Content:
        """The file's content; an empty one is made where there is none."""
        found = self._names.get(name)
        if found is None:
            self._step(Operation("create", name))
            found = self._names[name] = Content(log=log)
            self._entries.setdefault(name, [None]).append(found)
        return found

    def read(self, name: str, offset: int, length: int) -> None:
        """A read changes nothing, but may fail."""
        if self.trouble is not None:
            self.trouble(Operation("read", name, offset, length))

    def change(self, name: str, content: Content, offset: int, data: bytes | None) -> None:
        """Write `data` at `offset`; None cuts the file off there."""
        kind = "truncate" if data is None else "write"
        length = 0 if data is None else len(data)
        self._step(Operation(kind, name, offset, length))
        with self._lock:
            grows = max(0, offset + length - len(content.now))
            if self.capacity is not None and grows and self._used() + grows > self.capacity:
                raise apsw.exception_for(apsw.SQLITE_FULL)
            content.change(offset, data)

    def sync(self, name: str, content: Content) -> None:
        try:
            self._step(Operation("sync", name))
        except SyncFailed as failure:
            if failure.kept:
                content.sync()
            content.pending.clear()  # visible, yet no later sync will write it
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC) from None
        with self._lock:
            if ("log" if content.log else "database") not in self.lies:
                content.sync()
            if content.log and not content.synced:
                content.synced = True
                self._sync_folder()

    def delete(self, name: str, sync_folder: bool) -> None:
        if name not in self._names:
            raise apsw.exception_for(apsw.SQLITE_IOERR_DELETE_NOENT)
        self._step(Operation("delete", name))
        with self._lock:
            del self._names[name]
            self._entries[name].append(None)
            if sync_folder:
                self._sync_folder()

    def write_back(self) -> None:
        """All that was written is on the disk: a system does that by itself when it has time."""
        with self._lock:
            for content in self._names.values():
                content.sync()
            self._entries = {name: [content] for name, content in self._names.items()}

    def cut(self) -> None:
        """The power goes now."""
        self.off = True

    def survivor(self, rng: random.Random, how: Survival | None = None) -> Disk:
        """What a machine finds that starts after the cut."""
        how = how or Survival.draw(rng)
        left: dict[str, bytes] = {}
        for name in sorted(self._entries):
            content = rng.choice(self._entries[name])
            if content is not None:
                left[name] = bytes(how.of(content, rng))
        return Disk(left)

    def image(self) -> dict[str, bytes]:
        """What readers see now, as files."""
        return {name: bytes(content.now) for name, content in self._names.items()}

    def _used(self) -> int:
        return sum(len(content.now) for content in self._names.values())

    def _sync_folder(self) -> None:
        if "names" not in self.lies:
            self._entries = {name: [content] for name, content in self._names.items()}

    def _step(self, operation: Operation) -> None:
        """One operation is about to happen; raises if it does not."""
        if self.trouble is not None:
            self.trouble(operation)
        with self._lock:
            if not self.off:
                self.operations += 1
                self._trace.update(repr(operation).encode())
                if self.fuse is not None and self.fuse.blows(operation):
                    self.off, self.cut_at = True, operation
            if self.off:
                raise apsw.exception_for(apsw.SQLITE_IOERR)


class Survival(NamedTuple):
    """What becomes of unsynced writes at one cut."""

    unit: int | None  # a write is torn at multiples of it; None: never torn
    keep: float  # the chance of each part
    garbage: float  # the chance that a part inside a write becomes noise
    in_order: bool  # only a beginning of the writes is there, as on a disk that does not reorder

    @classmethod
    def draw(cls, rng: random.Random) -> Survival:
        keep = rng.choice((0.1, 0.5, 0.9))
        return rng.choice(
            (
                cls(None, 0.0, 0.0, False),  # nothing
                cls(None, 1.0, 0.0, False),  # all of it
                cls(SECTOR, 0.8, 0.1, True),
                cls(None, keep, 0.0, False),
                cls(PAGE, keep, 0.0, False),
                cls(SECTOR, keep, 0.0, False),
                cls(SECTOR, keep, 0.2, False),
            )
        )

    def of(self, content: Content, rng: random.Random) -> bytearray:
        left = bytearray(content.durable)
        pending = content.pending
        last = rng.randint(0, len(pending)) if self.in_order else -1
        for place, (offset, data) in enumerate(pending):
            if self.in_order:
                if place > last:
                    break
                if place < last:
                    _apply(left, offset, data)
                    continue
            for start, part in _parts(offset, data, self.unit):
                self._keep(left, start, part, rng)
        if len(left) < len(content.now) and rng.random() < 0.3:
            missing = len(content.now) - len(left)
            left += bytes(missing) if rng.random() < 0.5 else rng.randbytes(missing)
        return left

    def _keep(self, left: bytearray, start: int, part: bytes | None, rng: random.Random) -> None:
        if rng.random() < self.keep:
            _apply(left, start, part)
        elif part is not None and rng.random() < self.garbage:
            _apply(left, start, rng.randbytes(len(part)))


def _parts(offset: int, data: bytes | None, unit: int | None) -> Iterator[tuple[int, bytes | None]]:
    """The write cut at multiples of `unit` of the file, as a disk's sectors would."""
    if data is None or unit is None:
        yield offset, data
        return
    start = 0
    while start < len(data):
        end = start + unit - (offset + start) % unit
        yield offset + start, data[start:end]
        start = end


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data
