"""Hears from the server which queues were touched: one long poll for a whole storage, only while someone waits.

The long poll takes nothing. If this process dies, the server ends it and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.msgpack import Decoder

from accoda.clock import Clock
from accoda.storage.common.wakeups import HintedWakeUps, Seen
from accoda.storage.tarantool.client import Client
from accoda.storage.tarantool.errors import ServerError, translate

POLL_FOR = 30.0  # seconds that the server holds a poll in which nothing happens

_SEEN: Decoder[Any] = Decoder(tuple[tuple[bool, float | None, bool, bool]])
_TOUCHED: Decoder[Any] = Decoder(tuple[tuple[int, list[tuple[str, bool]]]])


class LongPoll(HintedWakeUps):
    """Used in the client's home loop, except `wake`."""

    def __init__(self, client: Client, clock: Clock | None) -> None:
        super().__init__(clock)
        self._client = client
        self._waits: dict[object, Sequence[str]] = {}  # for each `wait` under way, its queues
        self._poll: asyncio.Future[Any] | None = None
        self._polled: frozenset[str] = frozenset()
        self._seen: int | None = None
        self._problem: ServerError | None = None

    async def wait_for(self, queues: Sequence[str], timeout: float) -> bool:
        """The verb `wait`."""
        names, wait = list(dict.fromkeys(queues)), object()

        async def look() -> Seen:
            await self._client.connected()
            if self._problem is not None:  # a caller that cannot be woken must not sleep
                problem, self._problem = self._problem, None
                raise translate(problem, self._client.address) from problem
            # The poll goes before the look, over the same connection: nothing can happen between the two.
            self._waits[wait] = names
            self._begin()
            return Seen(*await self._client.call("wait", (names,), _SEEN))

        try:
            return await self.wait_for_hints(names, timeout, look)
        finally:
            self._waits.pop(wait, None)

    def _begin(self) -> None:
        wanted = frozenset().union(*self._waits.values())
        if not wanted or (self._poll is not None and self._polled >= wanted):
            return
        # A poll that is under way for fewer queues is ended by the server when this one comes. Nothing is missed:
        # `seen` is what the last answered poll had seen, and the server answers at once if anything happened since.
        self._polled = wanted
        self._poll = self._client.send("listen", (list(wanted), self._seen, POLL_FOR), _TOUCHED)
        self._poll.add_done_callback(self._answered)

    def _answered(self, poll: asyncio.Future[Any]) -> None:
        current = poll is self._poll
        if current:
            self._poll = None
        problem = None if poll.cancelled() else poll.exception()
        if poll.cancelled() or problem is not None:
            # The connection is lost, and with it the count of its server. Everyone looks again, which reconnects.
            if current:
                self._seen = None
                self._problem = problem if isinstance(problem, ServerError) else None
                self.wake()
            return
        count, touched = poll.result()
        self._seen = count if self._seen is None else max(self._seen, count)
        for queue, ready in touched:
            self.hear(queue, ready=ready)
        self._begin()
