"""Whether the leases of a task are held by a process of this machine, or perhaps beyond it.

A worker of this machine is gone when the machine loses its power. So a lease that a power cut made the storage forget
cannot be used any more, and a storage whose file is on the same machine (SQLite) need not wait for its disk before it
answers: the job is ready again, as it would be when the lease ended. A worker behind the HTTP API lives on. If its
lease were forgotten, its token would be given out a second time and fit the lease of another. So the caller must say
it; otherwise it gets a lease that survives.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

_here: ContextVar[bool] = ContextVar("accoda_held_here", default=False)

is_held_here = _here.get
"""Whether the leases of this call never leave this process."""


def hold_here() -> None:
    """The leases that the current task takes or extends from now on never leave this process."""
    _here.set(True)


class held_here:
    """The same for a block."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before: Token[bool] = _here.set(True)

    def __exit__(self, *_: object) -> None:
        _here.reset(self._before)
