"""Threads that can be given up: one for each piece of work at a time, reused, and never waited for at exit.

`concurrent.futures` joins its threads when the interpreter ends, so one handler that hangs would keep the worker alive.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class Threads:
    """A pool that grows with the work that runs at once. The work must not raise."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)
        self._idle: deque[_Thread] = deque()
        self._closed = False

    def submit(self, work: Work) -> None:
        """Run `work` in a thread of its own, now."""
        try:
            thread = self._idle.pop()
        except IndexError:
            thread = _Thread(f"{self._name}-{next(self._numbers)}", self._rest)
            thread.start()
        thread.inbox.put(work)

    def close(self) -> None:
        """Let idle threads end at once, and the others when their work does. A second close does no harm."""
        self._closed = True
        while self._idle:
            try:
                thread = self._idle.pop()
            except IndexError:  # pragma: no cover - another thread was quicker
                return
            thread.inbox.put(None)
            thread.join(1.0)  # it is at rest, so this takes no time

    def _rest(self, thread: _Thread) -> None:
        self._idle.append(thread)
        # Looked at after the entry: `close` either finds the thread among the idle ones, or has set this before.
        if self._closed:
            thread.inbox.put(None)


class _Thread(threading.Thread):
    def __init__(self, name: str, rest: Callable[[_Thread], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._rest = rest

    def run(self) -> None:
        while (work := self.inbox.get()) is not None:
            work()
            del work  # an idle thread keeps no batch alive
            self._rest(self)
