"""uvicorn with what a service with long polls and clients of all kinds needs of it."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable
from typing import Any

from accoda.http.extra import require
from accoda.http.security.connections import MOST, Connections

require()

import uvicorn  # noqa: E402  # only after the check, so that a missing library is told with its cure


def configuration(service: Any, **more: Any) -> uvicorn.Config:
    """What a service is run with: httptools, a lifespan that must succeed, no log lines of its own for each request."""
    from accoda.http.security.head_bounds import BoundedHeads

    chosen: dict[str, Any] = {
        "http": BoundedHeads,
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 10,
        "timeout_keep_alive": 30,
    }
    return uvicorn.Config(service, **(chosen | more))


class Server(uvicorn.Server):
    """Calls `started` when it answers, and lets go of the service's long polls before it waits for open requests.

    uvicorn ends the lifespan only after the last request: a poll that waits for 60 seconds would hold it that long.
    Connections that are still open after that are aborted. `most` is how many there may be.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        leave: Callable[[], None],
        started: Callable[[], None] = lambda: None,
        most: int = MOST,
    ) -> None:
        from accoda.http.security.head_bounds import BoundedState

        super().__init__(config)
        self._connections = Connections(most)
        self.server_state = BoundedState(self._connections)
        self._leave = leave
        self._tell_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._leave()
        await super().shutdown(sockets)
        # uvicorn has cancelled what still runs, but a task that waits for its client to read does not end by that: it
        # would wait again, to say that it was cancelled.
        await self._connections.end()


def spare_the_collector() -> None:
    """Let Python's collector leave alone what lives as long as the process, and look for cycles less often.

    For a process that does nothing but serve, once it has started.
    Requests make few cycles. By default it looks after every 700 new objects, and now and then at all that there are:
    with a store in memory that was a sixth of the time of a request.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def leave_of(service: Any) -> Callable[[], None]:
    """How to let a service's polls go, through the guards around it."""
    while not hasattr(service, "leave"):
        service = service.inner
    leave: Callable[[], None] = service.leave
    return leave
