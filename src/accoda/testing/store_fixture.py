"""What a storage is tested with: one store, the handles on it, and its time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from accoda.clock import Clock, ManualClock
from accoda.storage.protocol import Store


class StoreFixture(Protocol):
    """What the suite knows of the store under test.

    `url` opens the same store from another process. `shared` is True where several handles, or several processes, can
    have it open; where it is False, `open` is called once. `exact` is True where time stands still until `advance`, so
    that moments can be compared to the millisecond.
    """

    @property
    def url(self) -> str: ...

    @property
    def shared(self) -> bool: ...

    @property
    def exact(self) -> bool: ...

    async def open(self) -> Store:
        """Another handle on the store."""
        ...

    async def advance(self, seconds: float) -> None:
        """Let that much time pass for the store."""
        ...

    async def now(self) -> int:
        """The store's present moment in milliseconds."""
        ...


MakeFixture = Callable[[], AbstractAsyncContextManager[StoreFixture]]
"""Gives a fixture with an empty store, and clears it away afterwards."""


class ManualStoreFixture:
    """A store that lives in this process and takes a clock, so that tests of time take no time."""

    exact = True

    def __init__(self, opener: Callable[[Clock], Awaitable[Store]], *, url: str, shared: bool) -> None:
        self.clock = ManualClock()
        self.url = url
        self.shared = shared
        self._opener = opener

    async def open(self) -> Store:
        return await self._opener(self.clock)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def now(self) -> int:
        return self.clock.now()
