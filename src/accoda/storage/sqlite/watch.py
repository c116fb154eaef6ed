"""Tells the processes that share a database when one of them has committed something new.

After its commit a process touches the `-shm` file that SQLite keeps beside the database, and on Linux the kernel tells
those who watch it (inotify): a sleeping worker costs nothing and wakes in a fraction of a millisecond. Watching the log
itself would be too early: it is written before the commit can be seen. Elsewhere we look every 10 ms while somebody
waits. Both are hints: `wait` looks by itself once a second, for the process that was killed before it could touch.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path

_POLL = 0.01
_PAUSE = 0.001  # between two looks: a busy writer would otherwise wake us for every commit
_IN_ATTRIB = 0x4
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


class Watcher:
    """A thread that calls `on_change` after commits, but only while `needed()`."""

    def __init__(self, database: Path, on_change: Callable[[], None], needed: Callable[[], bool]) -> None:
        self._on_change = on_change
        self._needed = needed
        self._wanted = threading.Event()
        self._stopped = False
        self._inotify = _watch(shared_file(database))
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._work, name=f"accoda watch {database.name}", daemon=True)
        self._thread.start()

    def want(self) -> None:
        """Somebody is going to wait. Commits from now on are noticed."""
        self._wanted.set()

    def close(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._wanted.set()
        os.write(self._wake_write, b"x")
        self._thread.join()
        for descriptor in (self._wake_read, self._wake_write, self._inotify):
            if descriptor is not None:
                os.close(descriptor)

    def _work(self) -> None:
        while not self._stopped:
            self._wanted.wait()
            # What was committed before this line is seen by the look that every waiter takes after `want`, or by the
            # one that `on_change` causes now; what is committed later makes the file descriptor readable.
            self._wanted.clear()
            self._drain()
            self._on_change()
            while self._needed() and not self._stopped:
                self._sleep()
                self._drain()
                self._on_change()
                if not self._stopped:
                    select.select([self._wake_read], [], [], _PAUSE)

    def _sleep(self) -> None:
        if self._inotify is None:
            select.select([self._wake_read], [], [], _POLL)
        else:
            select.select([self._inotify, self._wake_read], [], [])

    def _drain(self) -> None:
        if self._inotify is not None:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._inotify, 65536):
                    pass


def shared_file(database: Path) -> Path:
    """SQLite's index of the log: there as long as anybody has the database open."""
    return database.with_name(database.name + "-shm")


def touch(shared: Path) -> None:
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
