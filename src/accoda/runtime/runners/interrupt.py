"""Stop the code that a thread runs by raising in it, and never hit anything else.

A `Turn` is one call of a handler in a thread. It has one token, in a list, and the first to pop it decides (a pop is
one atomic step):

- the thread, when its call is over: then nothing can be raised in it any more;
- `interrupt`: then exactly one `HandlerStopped` is sent, and the thread does not leave `shielded` before that was
  raised, or taken back. So it cannot hit the code after the call, or the next job.

The exception is raised at the thread's next Python instruction. A call that sits in C (a long `sleep`, a socket without
a timeout) goes on until it returns; such a thread can only be given up.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")


class HandlerStopped(BaseException):
    """Raised inside a `def` handler that is over its time, or whose lease is lost. Let it pass.

    It is no `Exception`, so that `except Exception` in a handler does not swallow it.
    """


class Turn:
    """One call of a handler in a thread."""

    __slots__ = ("item", "started", "stay", "thread", "token")

    def __init__(self, item: Any, thread: int) -> None:
        self.item = item
        """What the handler is called with: a job, or a batch."""
        self.thread = thread
        self.started = time.monotonic()
        self.token = [True]
        self.stay: list[bool] | None = None
        """Set when the exception was sent. Its token decides whether the thread came back, or was given up first."""


def claim(token: list[bool]) -> bool:
    """Whether we are the first to claim it."""
    try:
        token.pop()
    except IndexError:
        return False
    return True


def shielded(turn: Turn, show: Callable[[Turn], None], call: Callable[[Any], R]) -> R | None:
    """What `call(turn.item)` gives, or None if it was interrupted. It must not raise, nor give None.

    The turn is shown, so that it can be interrupted, inside the `try`. So the exception, of which at most one is ever
    sent, arrives inside as well: in the call, where the handler may even swallow it, or at any other line. After it
    arrived, or was taken back, nothing more can come.
    """
    try:
        show(turn)
        result = call(turn.item)
        if claim(turn.token):
            return result
        _wait_until_sent(turn)
        _raise_in(threading.get_ident(), None)  # take it back, if it did not arrive yet
    except HandlerStopped:
        pass
    return None


def came_back(turn: Turn) -> bool:
    """After an interruption: whether the thread may go on. False: it was given up, and another has its work."""
    _wait_until_sent(turn)
    assert turn.stay is not None
    return claim(turn.stay)


def interrupt(turn: Turn) -> list[bool] | None:
    """Raise in the thread, if its call is not over yet. Gives the token by which to give the thread up later."""
    if not claim(turn.token):
        return None
    # The thread cannot end, nor its ident be used again: it waits for `stay`, which is set after the sending.
    _raise_in(turn.thread, HandlerStopped)
    stay = turn.stay = [True]
    return stay


def _wait_until_sent(turn: Turn) -> None:
    while turn.stay is None:  # the interrupter is between two lines: a moment
        time.sleep(0.0005)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    api = getattr(ctypes, "pythonapi", None)
    if api is not None:  # CPython only; elsewhere a thread that is stuck can only be given up
        value = ctypes.py_object() if error is None else ctypes.py_object(error)
        api.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)
