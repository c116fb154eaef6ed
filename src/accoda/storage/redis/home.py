"""A storage's connections belong to the event loop in which it was opened; other loops send their calls there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from accoda.errors import StorageClosed

T = TypeVar("T")


_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)  # dearer once, cheaper than asking for the process id at every call


class Home:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._forks = _forks
        self.closed = False

    def is_here(self) -> bool:
        """Whether the caller may use the connections directly: the usual case, and the fast one."""
        return asyncio.get_running_loop() is self._loop and not self.closed and self._forks == _forks

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self.is_here():
            return await work
        trouble = self._trouble()
        if trouble is not None:
            work.close()
            raise StorageClosed(trouble)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _trouble(self) -> str | None:
        if self.closed:
            return "this storage was closed; open a new one"
        if self._forks != _forks:
            return "this storage was opened before the process was forked; open one in the child"
        if not self._loop.is_running():
            return "the event loop in which this storage was opened has ended; open one in the present loop"
        return None
