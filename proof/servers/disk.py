"""A disk that fails on command: full, with failing or slow fsync.

A small library (`disk.c`) is loaded into a program with LD_PRELOAD and looks at a control file at each write and sync;
what it does to files below one folder changes while the program runs. The library is compiled on first use; without a
C compiler, or on a system without LD_PRELOAD, `Disk` raises `ServerMissing`.

    disk = Disk()
    with RedisServer("always", disk=disk) as server:
        disk.full()
        ...
        disk.well()
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from proof.servers.process import ServerMissing


class Disk:
    """The disk below `folder`; each file whose name ends in one of `spared` is left alone."""

    def __init__(self, folder: Path | None = None, spared: tuple[str, ...] = (".log",)) -> None:
        self._library = library()
        self._place = Path(tempfile.mkdtemp(prefix="accoda-disk-"))
        self._place.chmod(0o777)  # a server may run as another user, which reads it and removes it after `once`
        self._control = self._place / "control"
        self._spared = spared
        self.folder = folder
        self.well()

    def environment(self, folder: Path | None = None) -> Mapping[str, str]:
        """What a program must be started with."""
        place = folder or self.folder
        assert place is not None, "which folder is the disk?"
        return {
            "LD_PRELOAD": str(self._library),
            "ACCODA_DISK_FOLDER": str(place.resolve()),
            "ACCODA_DISK_CONTROL": str(self._control),
            "ACCODA_DISK_NOT": ":".join(self._spared),
        }

    def well(self) -> None:
        self._set()

    def full(self, limit: int = 0) -> None:
        """No file may grow beyond `limit` bytes. What lies within a file that is there can be written still."""
        self._set(write_error=errno.ENOSPC, limit=limit)

    def broken_sync(self, *, once: bool = False) -> None:
        """fsync says that the disk has an error; with `once` the next one, as Linux tells of a lost page."""
        self._set(sync_error=errno.EIO, once=once)

    def slow_sync(self, seconds: float) -> None:
        self._set(sync_ms=round(seconds * 1000))

    def close(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)

    def _set(
        self, sync_error: int = 0, sync_ms: int = 0, write_error: int = 0, limit: int = 0, *, once: bool = False
    ) -> None:
        # Written beside and moved: a reader finds either the old line or the new one, never half of one.
        fresh = self._control.with_suffix(".new")
        fresh.write_text(f"{sync_error} {sync_ms} {write_error} {limit} {int(once)}\n")
        fresh.chmod(0o644)
        fresh.replace(self._control)


def library() -> Path:
    """The compiled library: made once for each version of its source, for each user."""
    if sys.platform != "linux":
        raise ServerMissing("disk faults need Linux: they are injected with LD_PRELOAD")
    source = files("proof.servers").joinpath("disk.c").read_bytes()
    name = f"accoda-disk-{os.getuid()}-{hashlib.sha256(source).hexdigest()[:16]}.so"
    made = Path(tempfile.gettempdir()) / name
    if made.exists() and made.stat().st_uid == os.getuid():
        return made
    compiler = next((path for each in ("cc", "gcc", "clang") if (path := shutil.which(each))), None)
    if compiler is None:
        raise ServerMissing("disk faults need a C compiler (cc, gcc or clang), and there is none")
    fresh = made.with_suffix(f".{os.getpid()}")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(fresh), "-x", "c", "-", "-ldl"]
    ended = subprocess.run(command, input=source, capture_output=True)
    if ended.returncode != 0:
        raise ServerMissing(f"the C compiler could not make the library for disk faults: {ended.stderr.decode()}")
    fresh.chmod(0o755)
    fresh.replace(made)  # at once: another process finds all of it or none
    return made
