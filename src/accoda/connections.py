"""An app's stores: one for each event loop that uses it, opened on first use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from accoda.clock import Clock
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store

_forks = 0
"""How often this process, and those before it, were forked: to count is cheaper than to ask the kernel who we are."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Connections:
    """Opens stores behind a URL and keeps track of them.

    A connection belongs to the event loop that opened it, and to the process: another loop, or a process forked later,
    gets one of its own. Memory is the exception: there is one store for the app, which any loop may use.
    """

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.url = url
        self.clock = clock
        self._shared: Store | None = None
        self._forks = _forks
        self._opened: dict[asyncio.AbstractEventLoop, asyncio.Task[Store]] = {}

    @property
    def in_memory(self) -> bool:
        return self.url.startswith("memory:")

    async def get(self) -> Store:
        """This loop's store."""
        store = self.at_hand()
        if store is not None:
            return store
        loop = asyncio.get_running_loop()
        self._tidy()
        opened = self._opened.get(loop)
        if opened is None:
            # No await between the look and the entry: a second caller on this loop finds the first one's task. It is a
            # task of its own, so that a caller who is cancelled does not cancel the opening for the others.
            opened = self._opened[loop] = loop.create_task(self.open())
            opened.add_done_callback(partial(self._drop_if_failed, loop))
        return await asyncio.shield(opened) if not opened.done() else opened.result()

    def at_hand(self) -> Store | None:
        """This loop's store, if it is open already: for those who cannot spare the way over `get`."""
        opened = self._opened.get(asyncio.get_running_loop())
        return opened.result() if opened is not None and self._forks == _forks and opened.done() else None

    async def open(self) -> Store:
        """Another store, which the caller closes with `put_back`. In memory it is the shared one."""
        if not self.in_memory:
            return await open_storage(self.url, clock=self.clock)
        if self._shared is None:
            self._shared = await open_storage(self.url, clock=self.clock)
        return self._shared

    async def put_back(self, store: Store) -> None:
        """Close a store that `open` gave, unless it is the shared one."""
        if store is not self._shared:
            await store.close()

    async def reopen(self) -> Store:
        """Open this loop's store anew and then close the old one; for one that seems to be stuck."""
        loop = asyncio.get_running_loop()
        old = self._opened.pop(loop, None)
        try:
            new = await self.get()
        except BaseException:
            # It stays in use, and open: who has it in hand could do nothing with a closed one, not even try again.
            if old is not None:
                self._opened.setdefault(loop, old)
            raise
        if old is not None and old.done() and not old.cancelled() and not old.exception():
            await self.put_back(old.result())
        return new

    async def close(self) -> None:
        """Close this loop's store. The next use opens it again."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await self.put_back(await opened)

    def _drop_if_failed(self, loop: asyncio.AbstractEventLoop, opened: asyncio.Task[Store]) -> None:
        """The next caller tries anew."""
        if (opened.cancelled() or opened.exception() is not None) and self._opened.get(loop) is opened:
            del self._opened[loop]

    def _tidy(self) -> None:
        if self._forks != _forks:
            # After a fork the parent's connections are none of ours, and must not be closed by us either.
            self._forks, self._shared = _forks, None
            self._opened = {}
        for loop in [loop for loop in self._opened if loop.is_closed()]:
            del self._opened[loop]


class _Lazy:
    """Stands for a store that is opened by the first call."""

    def __init__(self, connections: Callable[[], Connections]) -> None:
        self._connections = connections

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        if verb.startswith("_") or not hasattr(Store, verb):
            raise AttributeError(f"a storage has no {verb!r}")
        if verb == "close":
            return lambda: self._connections().close()

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await getattr(await self._connections().get(), verb)(*args, **kwargs)

        return call

    async def __aenter__(self) -> Store:
        return await self._connections().get()

    async def __aexit__(self, *error: object) -> None:
        await self._connections().close()


def lazy_store(connections: Callable[[], Connections]) -> Store:
    """A `Store` whose first call connects."""
    return cast(Store, _Lazy(connections))
