"""Whether the service lives, and whether it can do its work."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

from msgspec import Struct

from accoda.errors import StorageError
from accoda.http.call import Answer, Call
from accoda.http.operation import Reply, operation
from accoda.runtime.heartbeat import read_heartbeats
from accoda.storage.common.reconnecting import set_patience

GROUP = "Service"

REFUSED_FOR = 0.1
"""Seconds in which a store that was lost may be found again before the service calls itself not ready."""


class Live(Struct, frozen=True):
    """The event loop turns."""

    status: Literal["live"]


class StorageHealth(Struct, frozen=True):
    """How long the store took to answer just now, in seconds; null: it did not."""

    latency: float | None
    problem: str | None = None


class Ready(Struct, frozen=True):
    """Whether requests can be served now, and by what."""

    status: Literal["ready", "unready"]
    storage: StorageHealth
    workers: int | None


@operation(
    "GET",
    "/health/live",
    GROUP,
    "Whether the service lives",
    scope=None,
    description="Answers as long as its event loop turns, whatever the store does: restart it when it does not.",
    replies={200: Reply(description="It lives.", type=Live, example=Live("live"))},
)
async def get_live(call: Call[Any, Any, Any]) -> Live:
    return Live("live")


@operation(
    "GET",
    "/health/ready",
    GROUP,
    "Whether the service can do its work",
    scope=None,
    description="Asks the store now, and says how long it took. Send no requests here while it says 503.",
    replies={
        200: Reply(description="The store answers.", type=Ready, example=Ready("ready", StorageHealth(0.0004), 2)),
        503: Reply(
            description="The store does not answer.",
            type=Ready,
            example=Ready("unready", StorageHealth(None, "the store did not answer within 2 s"), None),
        ),
    },
)
async def get_ready(call: Call[Any, Any, Any]) -> Answer:
    begun = time.perf_counter()
    try:
        # A server that refuses connections is away now: whether it will be back in a moment is the next question's.
        async with asyncio.timeout(call.options.ready_within):
            set_patience(REFUSED_FOR)
            # A read of what is not there: the shortest way to the store and back, on every storage.
            await call.app.storage.read("accoda/ready")
            latency = time.perf_counter() - begun
            alive = len(await read_heartbeats(call.app.storage))
    except TimeoutError:
        problem = f"the store did not answer within {call.options.ready_within:g} s"
        return Answer(Ready("unready", StorageHealth(None, problem), None), 503)
    except StorageError as error:
        return Answer(Ready("unready", StorageHealth(None, type(error).__name__), None), 503)
    return Answer(Ready("ready", StorageHealth(round(latency, 6)), alive))
