"""`def` handlers in the thread of whoever waits for them, as testing mode runs them.

A test has its database transaction, its scoped session and its mocks of thread-local state in its own thread. A handler
in another thread would not see them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from queue import SimpleQueue
from typing import TypeVar

from accoda.runtime.runners.threads import Work

R = TypeVar("R")


class CallerThread:
    """Work for a thread that waits for a future.

    A thread has one of these, however deeply its waits are nested: a handler that runs here may itself wait for jobs,
    and they may have been taken by the worker of the outer wait. The inner wait does that work too, so neither waits
    for the other.
    """

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self._todo: SimpleQueue[Work | None] = SimpleQueue()

    def submit(self, work: Work) -> None:
        """From any thread: have the waiting thread do this."""
        self._todo.put(work)

    def wait_for(self, future: Future[R]) -> R:
        """The answer of a future; meanwhile the thread does what is submitted."""
        future.add_done_callback(lambda _: self._todo.put(None))
        try:
            # Looked at before each wait, so it does not matter which of several nested waits takes the None.
            while not future.done():
                work = self._todo.get()
                if work is not None:
                    work()
        except BaseException:  # Ctrl-C, or the time limit of a test: nobody is left to do the work
            future.cancel()
            raise
        return future.result()


caller_thread: ContextVar[CallerThread | None] = ContextVar("accoda_caller_thread", default=None)
"""The thread that waits for what runs in this context, if it does the work of `def` handlers."""


def wait_here(start: Callable[[], Future[R]]) -> R:
    """Start something that keeps this context, and wait for it. This thread runs the `def` handlers of its jobs."""
    caller = caller_thread.get()
    if caller is not None and caller.ident == threading.get_ident():
        return caller.wait_for(start())
    caller = CallerThread()
    token = caller_thread.set(caller)
    try:
        return caller.wait_for(start())
    finally:
        caller_thread.reset(token)
