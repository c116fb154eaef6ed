"""The sync face of an app: one loop thread that runs the async calls. No twin of anything.

It lives in a thread of its own with a connection of its own, so it may be called from anywhere: a Django view, a
script, a `def` handler.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from accoda.app import App
from accoda.runtime.loops import fast_loop

P = ParamSpec("P")
R = TypeVar("R")


class _Call(Generic[R]):
    """A coroutine on its way through the loop thread, and the thread that waits for it.

    It does what `asyncio.run_coroutine_threadsafe` does, with one lock instead of two futures and a condition, since
    nobody cancels a call or shares it: that costs half as much.
    """

    __slots__ = ("_call", "_over", "_task")

    def __init__(self, call: Coroutine[Any, Any, R]) -> None:
        self._call = call
        self._task: asyncio.Task[R] | None = None
        self._over = threading.Lock()
        self._over.acquire()

    def run_on(self, loop: asyncio.AbstractEventLoop) -> R:
        """Wait for what the coroutine gives, or raises. Interrupted (Ctrl-C), the wait ends; the coroutine goes on."""
        try:
            # The loop runs `_begin`, and so the task, in a copy of the context of this thread.
            loop.call_soon_threadsafe(self._begin, loop)
        except RuntimeError:  # the loop was closed a moment ago
            self._call.close()
            raise
        self._over.acquire()
        assert self._task is not None
        if self._task.cancelled():
            raise CancelledError
        return self._task.result()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._call)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[R]) -> None:
        if not task.cancelled():
            task.exception()  # seen, even if the one who waited is gone
        self._over.release()


class Forward(Generic[P, R]):
    """A method of `App`, called without `await`."""

    def __init__(self, method: Callable[Concatenate[App, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, face: SyncFace, owner: type[SyncFace]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            # The method is called here, not in the loop thread, so that it sees the caller's context (`app.progress`).
            return face.run(self._method(face.app, *args, **kwargs))

        return call


class SyncFace:
    """`app.sync`: what `App` does, without `await`."""

    enqueue = Forward(App.enqueue)
    enqueue_many = Forward(App.enqueue_many)
    result = Forward(App.result)
    progress = Forward(App.progress)
    progress_of = Forward(App.progress_of)
    find = Forward(App.find)
    why = Forward(App.why)
    budget_views = Forward(App.budget_views)
    spending = Forward(App.spending)
    cancel = Forward(App.cancel)
    run_until_idle = Forward(App.run_until_idle)

    def __init__(self, app: App) -> None:
        self.app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def run(self, call: Coroutine[Any, Any, R]) -> R:
        """Run any coroutine on the loop thread and wait for it: `app.sync.run(app.storage.stats())`."""
        return _Call(call).run_on(self._start())

    def close(self) -> None:
        """Close the connection and end the thread. The next call starts them again."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            _Call(self.app.close()).run_on(loop)
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
