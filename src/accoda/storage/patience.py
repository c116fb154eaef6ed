"""How long a call waits for a server that is away.

A worker has time: its calls wait out a restart, as long as the storage's own patience says. Somebody who waits for an
answer on a screen has not. He says so here, for all calls that are made on his behalf, and the storages ask only when
they are in trouble: so a call that goes well pays nothing for it.

The word is kept in a context variable: it holds in the task that says it, and in tasks that are started there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

_most: ContextVar[float] = ContextVar("accoda_patience", default=inf)

wait_at_most = _most.set
"""Let the calls of this task wait for a server that is away at most so many seconds, from now on."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Let the calls in this block wait no longer than that; who asks for less already, keeps to it."""
    before = _most.set(min(seconds, _most.get()))
    try:
        yield
    finally:
        _most.reset(before)


def patience_of(usual: float) -> float:
    """How many seconds a call may try again in, where the storage would allow itself `usual`."""
    return min(usual, _most.get())
