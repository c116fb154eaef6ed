"""A storage's connections belong to the event loop in which it was opened, and to the process that opened them.

Calls from other loops and threads are carried out in that loop. A forked child shares its parent's sockets, so it must
not use them: it opens a storage of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar
from weakref import WeakSet

from accoda.errors import StorageClosed

T = TypeVar("T")

_forks = 0
_all: WeakSet[LoopAffinity] = WeakSet()


def _forked() -> None:
    global _forks
    _forks += 1
    for each in _all:
        each.forked = each.closed = True


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_forked)


def forks() -> int:
    """How often this process and its ancestors forked: cheaper to ask for than the process id."""
    return _forks


class LoopAffinity:
    """Made in the loop that the connections belong to. `what` names the storage in errors."""

    def __init__(self, what: str = "this storage") -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = False  # by its owner, or because this process is a child that was forked since
        self.forked = False
        self._what = what
        _all.add(self)

    @property
    def reachable(self) -> bool:
        """Whether the connections can be used or closed: not in a forked child, nor once their loop has ended."""
        return not self.forked and self.loop.is_running()

    def is_here(self) -> bool:
        """Whether the caller may use the connections directly: the usual case, and the fast one."""
        return not self.closed and asyncio.get_running_loop() is self.loop

    def check(self) -> None:
        """Raise `StorageClosed` where the connections cannot be used any more, from whatever loop."""
        if self.forked:
            raise StorageClosed(f"{self._what} was opened before the process forked; open one in the child")
        if self.closed:
            raise StorageClosed(f"{self._what} was closed; open a new one")
        if not self.loop.is_running():
            raise StorageClosed(f"the event loop in which {self._what} was opened has ended; open one in this loop")

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the loop of the connections."""
        if self.is_here():
            return await work
        try:
            self.check()
        except StorageClosed:
            work.close()
            raise
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))
