"""Calls of coroutines without `await`: one loop thread that runs them. No twin of anything.

The thread has an event loop, and so a connection, of its own: it may be used from anywhere, a Django view, a script, a
`def` handler.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from accoda.errors import InvalidInput
from accoda.runtime.loops import fast_loop
from accoda.runtime.runners.caller import wait_here

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H")


class Forward(Generic[H, P, R]):
    """An async method of another object, called without `await`."""

    def __init__(self, method: Callable[Concatenate[H, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, face: LoopThread[H], owner: type[LoopThread[H]]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            # The method is called here, not in the loop thread, so that it sees the caller's context (`app.progress`).
            return face.run(self._method(face.target, *args, **kwargs))

        return call


class LoopThread(Generic[H]):
    """Runs coroutines of `target`, on a thread that starts with the first of them. `close_target` ends its use."""

    def __init__(self, target: H, close_target: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.target = target
        self._close_target = close_target
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self.lends_thread = False
        """Testing mode: whether the thread that waits runs the `def` handlers of the jobs that its call starts."""

    def run(self, call: Coroutine[Any, Any, R]) -> R:
        """Run any coroutine on the loop thread and wait for it: `app.sync.run(app.storage.stats())`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            call.close()
            raise InvalidInput(
                "sync", "would block the event loop that runs here; await the call itself: app.enqueue(…)"
            )
        # The loop runs the task in a copy of this thread's context. Interrupted (Ctrl-C), only the wait ends.
        start = partial(asyncio.run_coroutine_threadsafe, call, self._start())
        return wait_here(start) if self.lends_thread else start().result()

    def close(self) -> None:
        """Close the connection and end the thread. The next call starts them again."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            asyncio.run_coroutine_threadsafe(self._close_target(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is not None and self._pid == os.getpid():
            return loop
        with self._lock:
            # A thread does not survive a fork (gunicorn with preload): the child starts one of its own.
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = fast_loop(), os.getpid()
                threading.Thread(target=_serve, args=(self._loop,), name="accoda-sync", daemon=True).start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
