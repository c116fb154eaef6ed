"""Tells the processes that share a database when one of them has committed something new.

After its commit a process touches the `-shm` file that SQLite keeps beside the database, and on Linux the kernel tells
those who watch it (inotify): a sleeping worker costs nothing and wakes in a fraction of a millisecond. Watching the log
itself would be too early: it is written before the commit can be seen. Elsewhere we look every 10 ms while somebody
waits. Both are hints: who waits looks by himself once a second, for the process that was killed before it could touch.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sys
from pathlib import Path

_POLL = 0.01
_IN_ATTRIB = 0x4
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


class Watch:
    """Where one thread sleeps until the database may have changed, or somebody calls it."""

    def __init__(self, database: Path) -> None:
        self._inotify = _watch(shared_file(database))
        self._bell_read, self._bell_write = os.pipe()
        os.set_blocking(self._bell_read, False)
        os.set_blocking(self._bell_write, False)  # a bell that rings already need not be rung again
        self._poll = select.poll()
        self._poll.register(self._bell_read, select.POLLIN)
        if self._inotify is not None:
            self._poll.register(self._inotify, select.POLLIN)

    def call(self) -> None:
        """Wake the thread. Callable from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._bell_write, b"x")

    def sleep(self, seconds: float) -> bool:
        """Until the file was touched (True), or it was called, or the time is over (never after it: rounded down)."""
        if self._inotify is None:
            seconds = min(seconds, _POLL)
        touched = False
        for descriptor, _ in self._poll.poll(int(seconds * 1000)):
            # Emptied before the look that follows: what is committed after this line makes it readable again.
            with contextlib.suppress(BlockingIOError):
                os.read(descriptor, 65536)
            touched |= descriptor == self._inotify
        return touched

    def close(self) -> None:
        for descriptor in (self._bell_read, self._bell_write, self._inotify):
            if descriptor is not None:
                os.close(descriptor)


def shared_file(database: Path) -> Path:
    """SQLite's index of the log: there as long as anybody has the database open."""
    return database.with_name(database.name + "-shm")


def touch(shared: str) -> None:
    """Tell the others. By its name: to open the file and close it again would drop SQLite's locks."""
    with contextlib.suppress(OSError):  # a hint, no more
        os.utime(shared)


def _watch(file: Path) -> int | None:
    """An inotify descriptor for the file, or None where there is no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if descriptor < 0:  # the user's limit of watchers is reached
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(file), _IN_ATTRIB) < 0:
        os.close(descriptor)
        return None
    return descriptor
