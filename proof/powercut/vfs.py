"""SQLite on a `Disk`: the default VFS of this process while it is installed, for the folders that are given to it.

Storage code needs no change and knows nothing of it. Locks and the shared memory of the log (`-shm`) are the real ones
of the Unix layer, on an empty file of the same name: they are memory of running processes, and no cut leaves them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from proof.powercut.disk import Content, Disk

_REAL = "unix"
_LOGS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


class _Held:
    """The part of a file that lives on the model's disk."""

    disk: Disk
    content: Content
    file: str

    def xRead(self, amount: int, offset: int) -> bytes:
        # Also without power: what a dead machine reads is of no consequence, and it ends its calls in a simpler way.
        self.disk.read(self.file, offset, amount)
        return bytes(self.content.now[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self.disk.change(self.file, self.content, offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        self.disk.change(self.file, self.content, size, None)

    def xSync(self, flags: int) -> None:
        self.disk.sync(self.file, self.content)

    def xFileSize(self) -> int:
        return len(self.content.now)

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE  # as the Unix layer says of every disk

    def excepthook(self, *error: object) -> bool:
        """What fails while a connection closes has no caller to tell; a disk that is off fails all the time."""
        return True


class _Database(_Held, apsw.VFSFile):
    """The database itself: content from the model, locks and shared memory from the real file."""

    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        apsw.VFSFile.__init__(self, _REAL, name, flags)
        self.disk, self.file = disk, _path(name).name
        self.content = disk.open(self.file, log=False)


class _Log(_Held):
    """The write-ahead log or a journal: it is never locked."""

    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self.disk, self.file = disk, _path(name).name
        self.content = disk.open(self.file, log=True)
        flags[1] = flags[0]

    def xTruncate(self, size: int) -> None:
        # SQLite cuts the log off after a commit and goes on if that fails. An error of a VFS in Python would come out
        # of the commit all the same, as if that had failed.
        with contextlib.suppress(apsw.Error):
            super().xTruncate(size)

    def xClose(self) -> None:
        pass

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return 4096


class PowerVFS(apsw.VFS):
    """`disks[folder] = Disk()` puts the databases of that folder on the model; all others stay where they are."""

    def __init__(self) -> None:
        super().__init__("accoda-power", _REAL, makedefault=True)
        self.disks: dict[Path, Disk] = {}

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        disk = None if name is None else self.disks.get(_path(name).parent)
        if disk is None:
            return apsw.VFSFile(_REAL, name, flags)
        if disk.off:
            raise apsw.exception_for(apsw.SQLITE_CANTOPEN)
        return _Log(disk, name, flags) if flags[0] & _LOGS else _Database(disk, name, flags)

    def xAccess(self, pathname: str, flags: int) -> bool:
        disk = self.disks.get(Path(pathname).parent)
        return super().xAccess(pathname, flags) if disk is None else disk.exists(Path(pathname).name)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        disk = self.disks.get(Path(filename).parent)
        if disk is None:
            super().xDelete(filename, syncdir)
        else:
            disk.delete(Path(filename).name, syncdir)

    def excepthook(self, *error: object) -> bool:
        return True


def _path(name: Any) -> Path:
    return Path(name if isinstance(name, str) else name.filename())


@contextlib.contextmanager
def installed() -> Iterator[PowerVFS]:
    """Make it this process's default VFS for a while. Connections that use it must be closed by then.

    One call of SQLite may fail twice, at its work and at undoing it. Its caller gets one error; apsw would print the
    other, which is the same.
    """
    vfs, hook = PowerVFS(), sys.unraisablehook
    sys.unraisablehook = lambda told: None if isinstance(told.exc_value, apsw.Error) else hook(told)
    try:
        yield vfs
    finally:
        sys.unraisablehook = hook
        vfs.unregister()  # the one that was the default before is the first in the list again
