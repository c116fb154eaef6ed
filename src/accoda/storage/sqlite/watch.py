"""Tells the processes that share a database when one of them has committed something new.

After its commit a process touches the `-shm` file that SQLite keeps beside the database, and on Linux the kernel tells
those that watch it (inotify): a sleeping worker costs nothing and wakes in a fraction of a millisecond. Watching the
log itself would be too early: it is written before the commit can be seen. Other systems look every 10 ms. Both are
hints: each sleeper looks once a second too, in case a process was killed before it could touch the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

POLL, SLOW_POLL = 0.01, 1.0  # seconds, without and with the kernel's help
PAUSE = 0.001  # seconds between two calls: a process that commits all the time must not keep the others awake
TOUCHED, WRITTEN = 0x4, 0x2  # what the kernel is asked to tell: IN_ATTRIB, IN_MODIFY
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


def shared_file(database: Path) -> Path:
    """SQLite's index of the log: there as long as a process has the database open.

    It is touched by its name: to open the file and close it again would drop SQLite's locks.
    """
    return database.with_name(database.name + "-shm")


class Watch:
    """Calls `changed` in each event loop that listens, when something has happened to one of the files."""

    def __init__(self, files: Sequence[Path], changed: Callable[[], None], *, events: int = TOUCHED) -> None:
        self._files = files
        self._events = events
        self._changed = changed
        self._listeners: dict[asyncio.AbstractEventLoop, _Listener] = {}

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen in the running event loop: from here on no change is missed."""
        listener = self._listeners.get(asyncio.get_running_loop()) or self._add_listener()
        listener.enter()
        try:
            yield
        finally:
            listener.leave()

    def _add_listener(self) -> _Listener:
        for loop in list(self._listeners):
            if loop.is_closed():
                self._listeners.pop(loop).close()
        loop = asyncio.get_running_loop()
        self._listeners[loop] = listener = _Listener(loop, _watch(self._files, self._events), self._changed)
        return listener

    def close(self) -> None:
        """Stop listening. Where a wait still sleeps, its descriptor is closed when it wakes."""
        while self._listeners:
            _, listener = self._listeners.popitem()
            listener.close()


class _Listener:
    """Listens in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inotify: int | None, changed: Callable[[], None]) -> None:
        self._loop = loop
        self._changed = changed
        self._inotify = inotify
        self._poll = POLL if self._inotify is None else SLOW_POLL
        self._inside = 0
        self._called_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def enter(self) -> None:
        self._inside += 1
        if self._inside == 1:
            if self._inotify is not None:
                self._empty()  # what was changed before is seen by the look that follows
                self._loop.add_reader(self._inotify, self._heard)
            self._timer = self._loop.call_later(self._poll, self._call)

    def leave(self) -> None:
        self._inside -= 1
        if self._inside == 0:
            assert self._timer is not None
            self._timer.cancel()
            if self._inotify is not None:
                self._loop.remove_reader(self._inotify)
            if self._closed:
                self.close()

    def close(self) -> None:
        self._closed = True
        if not self._inside and self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None

    def _heard(self) -> None:
        self._empty()
        left = self._called_at + PAUSE - self._loop.time()
        if left > 0:
            self._call_in(left)
        else:
            self._call()

    def _call(self) -> None:
        self._called_at = self._loop.time()
        self._call_in(self._poll)
        self._changed()

    def _call_in(self, seconds: float) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._call)

    def _empty(self) -> None:
        assert self._inotify is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._inotify, 65536)


def _watch(files: Sequence[Path], events: int) -> int | None:
    """An inotify descriptor for those of the files that are there, or None where there is no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if descriptor < 0:  # the user's limit of watchers is reached
        return None
    if max(libc.inotify_add_watch(descriptor, os.fsencode(file), events) for file in files) < 0:
        os.close(descriptor)
        return None
    return descriptor
