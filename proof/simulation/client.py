"""A process's connection to the simulated store: the `Store` that its app, worker, lease heartbeat and manager call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from accoda.clock import Clock
from accoda.connections import Connections
from accoda.errors import StorageClosed
from accoda.storage.protocol import Store
from accoda.storage.wrapper import Wrapper
from proof.checker import record
from proof.simulation.server import Call, Server
from proof.simulation.sim_loop import SimLoop

if TYPE_CHECKING:
    from proof.simulation.process import Process


class SimStore(Wrapper):
    """One connection. Every verb is a call that travels to the server."""

    def __init__(self, server: Server, process: Process) -> None:
        self.server = server
        self.process = process
        self.closed = False

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        if verb == "close":
            self._close()
            return None
        if self.closed or self.server.scheduler.over:
            raise StorageClosed("this connection was closed")
        process = self.process
        if verb == "settle":
            process.cluster.look_at(args[0])
        if process.trap is not None and process.sprung(verb, "before"):
            await process.freeze()
        call = Call(self, cast(SimLoop, asyncio.get_running_loop()), verb, args, kwargs)
        self.server.send(call)
        if process.trap is not None and process.sprung(verb, "sent"):
            await process.freeze()
        try:
            return await call.future
        except asyncio.CancelledError:
            if verb == "wait":
                self.server.drop(call)
            raise

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            self.server.drop_store(self)


class SimConnections(Connections):
    """Gives a process connections to the simulated store, each recorded."""

    def __init__(self, server: Server, process: Process, clock: Clock) -> None:
        super().__init__("memory://simulated", clock)
        self._server = server
        self._process = process

    async def open(self) -> Store:
        store = SimStore(self._server, self._process)
        await store.call("connect")
        self._process.stores.append(store)
        return record(cast(Store, store), self._process.recorder)
