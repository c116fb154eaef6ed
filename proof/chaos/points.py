"""The named points of a store: where a process kills itself in the middle of its calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from accoda.clock import Clock
from accoda.connections import Connections
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store
from accoda.storage.sqlite.storage import SqliteStorage
from proof.chaos.orders import Orders
from proof.checker import Recorder, record

COMMITS = frozenset({"enqueue", "take", "settle"})
NEVER_LOCKS = frozenset({"wait", "close"})


class Gate:
    """Keeps calls out while a process is stopped in a handler.

    A process that is stopped in the middle of a SQLite commit holds the file's lock and blocks all others: that is the
    nature of a file, not what is tested here. So calls under way are let out first, and new ones wait.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._shut = False
        self._lock = threading.Lock()

    async def enter(self) -> None:
        while True:
            with self._lock:  # the look and the step in one, so that nothing slips in after `shut`
                if not self._shut:
                    self._inside += 1
                    return
            await asyncio.sleep(0.005)

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1

    async def shut(self) -> None:
        """Return when no call is inside."""
        self._shut = True
        while self._inside:
            await asyncio.sleep(0.001)

    def open(self) -> None:
        self._shut = False


class Pointed:
    """Passes every verb on to the recorded store, and dies at the points that were ordered."""

    def __init__(self, store: Store, is_remote: bool, orders: Orders, gate: Gate | None) -> None:
        self._store = store
        self._is_remote = is_remote
        self._orders = orders
        self._gate = gate

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, verb)
        if verb.startswith("_") or verb in NEVER_LOCKS:
            return cast(Callable[..., Awaitable[Any]], method)
        return partial(self._call, verb, method)

    async def _call(self, verb: str, method: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        if self._gate is not None:
            await self._gate.enter()
        try:
            if verb == "settle":
                self._orders.reach("before settle")
            if verb in COMMITS and self._is_remote and self._orders.due("inside commit") is not None:
                self._orders.die_soon(f"inside commit of {verb}")
            answer = await method(*args, **kwargs)
        finally:
            if self._gate is not None:
                self._gate.leave()
        if verb == "take" and answer:
            self._orders.reach("after take")
        return answer


class PointedConnections(Connections):
    """Stores that are recorded and have points: for a whole app, its worker and its keeper."""

    def __init__(self, url: str, recorder: Recorder, orders: Orders, clock: Clock | None = None) -> None:
        super().__init__(url, clock)
        self._recorder = recorder
        self._orders = orders
        self.gate = Gate() if url.startswith("sqlite:") else None

    async def open(self) -> Store:
        bare = await open_storage(self.url, clock=self.clock)
        if isinstance(bare, SqliteStorage):
            # From the moment at which SQLite begins to commit: on its way to the disk, or there but not yet answered.
            # The connection is idle here, because the store is not in use yet.
            bare._writer._connection.set_commit_hook(self._at_commit)
        recorded = record(bare, self._recorder)
        return cast(Store, Pointed(recorded, not isinstance(bare, SqliteStorage), self._orders, self.gate))

    def _at_commit(self) -> bool:
        if self._orders.due("inside commit") is not None:
            self._orders.die_soon("inside commit of SQLite")
        return False  # go on with it
