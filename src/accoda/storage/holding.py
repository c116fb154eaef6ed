"""Who holds the leases of a take: a process of this machine, or perhaps somebody beyond it.

A worker of this machine is gone when the machine loses its power. So nobody is left who could use a lease that a power
cut made the storage forget, and a storage whose file is on the same machine (SQLite) need not wait for its disk before
it answers: the job is ready again, as it would be when the lease ended. A worker behind the HTTP API lives on. If its
lease were forgotten, its token would be given out a second time and fit the lease of another. So this must be said, by
the one who takes, and who says nothing gets a lease that survives.

The word is kept in a context variable: it holds in the block, and for calls that are made there.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

_here: ContextVar[bool] = ContextVar("accoda_held_here", default=False)

is_held_here = _here.get
"""Whether the leases of this call are held by this process, and by nobody beyond it."""


class held_here:
    """The leases that are taken or extended in this block never leave this process.

    A class and no generator: it is on the way of each job to an idle worker, where every call is felt.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before: Token[bool] = _here.set(True)

    def __exit__(self, *_: object) -> None:
        _here.reset(self._before)
