"""An app's stores: one for each event loop that uses it, opened on first use."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast
from weakref import WeakSet

from accoda.clock import Clock
from accoda.errors import StorageUnavailable
from accoda.model import Outcome, Refused
from accoda.storage.common.reconnecting import patience_limit
from accoda.storage.open import open_storage, split_timeout
from accoda.storage.protocol import Store
from accoda.storage.wrapper import Wrapper

TIMEOUT = 5.0
"""Seconds that a producer's call waits for a store that is away, unless its URL says otherwise."""


class Connections:
    """Opens stores behind a URL and keeps track of them.

    A connection belongs to the event loop that opened it, and to the process: another loop, or a process forked later,
    gets one of its own. Memory is the exception: there is one store for the app, which any loop may use.
    """

    def __init__(self, url: str, clock: Clock | None = None, *, in_trial: bool = False) -> None:
        self.url = url
        self.in_trial = in_trial
        """Whether this is a test's store: a caller's connection is then left out of it."""
        self._bare_url, timeout = split_timeout(url)
        self.timeout = TIMEOUT if timeout is None else timeout
        """Seconds that a producer's call waits for a store that is away."""
        self.clock = clock
        self.result_timeout: float | None = None
        """Seconds that a call waits for a result, unless it says so itself; None: until the job has ended."""
        self.stores: dict[asyncio.AbstractEventLoop, Store] = {}
        """Those that are open, by their loop."""
        self.on_settled: set[Callable[[Sequence[Outcome], Sequence[Refused]], None]] = set()
        """Told what is settled through the app's own storage: by handlers."""
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[Store]] = {}
        self._shared: Store | None = None
        _all.add(self)

    @property
    def in_memory(self) -> bool:
        return self.url.startswith("memory:")

    async def get(self) -> Store:
        """This loop's store."""
        loop = asyncio.get_running_loop()
        store = self.stores.get(loop)
        if store is not None:
            return store
        opening = self._opening.get(loop)
        if opening is None:
            # No await between the look and the entry: a second caller on this loop finds the first one's task. It is a
            # task of its own, so that a caller that is cancelled does not cancel the opening for the others.
            opening = self._opening[loop] = loop.create_task(self.open())
            opening.add_done_callback(partial(self._opened, loop))
        limit = patience_limit.get()
        try:
            async with asyncio.timeout(None if limit == math.inf else limit):
                return await asyncio.shield(opening)
        except TimeoutError:
            if opening.done():
                raise
            raise StorageUnavailable(f"the store did not answer within {limit:g} s (?timeout= in its URL)") from None

    async def open(self) -> Store:
        """Another store, which the caller closes with `put_back`. In memory it is the shared one."""
        if not self.in_memory:
            return await open_storage(self._bare_url, clock=self.clock)
        if self._shared is None:
            self._shared = await open_storage(self._bare_url, clock=self.clock)
        return self._shared

    async def put_back(self, store: Store) -> None:
        """Close a store that `open` gave, unless it is the shared one."""
        if store is not self._shared:
            await store.close()

    async def reopen(self) -> Store:
        """Open this loop's store anew and then close the old one; for one that seems to be stuck.

        If that fails, the old one stays in use: a caller can try again with it, but not with a closed one.
        """
        loop = asyncio.get_running_loop()
        new = await self.open()
        old, self.stores[loop] = self.stores.get(loop), new
        if old is not None:
            await self.put_back(old)
        return new

    async def close(self) -> None:
        """Close this loop's store. The next use opens it again."""
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is not None:
            await asyncio.shield(opening)
        store = self.stores.pop(loop, None)
        if store is not None:
            await self.put_back(store)

    def forget(self) -> None:
        """After a fork: the parent's connections are not ours, and must not be closed by us either."""
        self.stores, self._opening, self._shared = {}, {}, None

    def _opened(self, loop: asyncio.AbstractEventLoop, opening: asyncio.Task[Store]) -> None:
        """The store is there, or the next caller tries anew."""
        if self._opening.get(loop) is opening:
            del self._opening[loop]
            if not opening.cancelled() and opening.exception() is None:
                self.stores[loop] = opening.result()
        for closed in [known for known in self.stores if known.is_closed()]:
            del self.stores[closed]


class _Lazy(Wrapper):
    """Stands for a store that is opened by the first call."""

    def __init__(self, connections: Callable[[], Connections]) -> None:
        self._connections = connections

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        connections = self._connections()
        if verb == "close":
            return await connections.close()
        answer = await getattr(await connections.get(), verb)(*args, **kwargs)
        if verb == "settle":
            for note in list(connections.on_settled):
                note(args[0], answer)
        return answer


def lazy_store(connections: Callable[[], Connections]) -> Store:
    """A `Store` whose first call connects."""
    return cast(Store, _Lazy(connections))


def _forget_all() -> None:
    for connections in _all:
        connections.forget()


_all: WeakSet[Connections] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
