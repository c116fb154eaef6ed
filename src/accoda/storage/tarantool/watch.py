"""What one who waits has seen and heard of his queues, and what follows from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from accoda.clock import Clock
from accoda.storage.tarantool import rows
from accoda.storage.tarantool.client import Client
from accoda.storage.tarantool.listener import Listener


class Watch:
    """Of one `wait`, which sleeps by `timers`. It runs in the client's home loop."""

    def __init__(self, client: Client, listener: Listener, timers: Clock, queues: Sequence[str]) -> None:
        self._client = client
        self._listener = listener
        self._timers = timers
        self._queues = list(dict.fromkeys(queues))
        self._heard: dict[str, tuple[int, int]] | None = None  # before the last look, if that saw no pause
        self._starts_at: float | None = None  # when a job starts, by that look

    async def look(self) -> tuple[bool, int | None]:
        """Whether something may be takable, and if not, when to look again at the latest."""
        self._client.check()
        return await self._client.at_home(self._look())

    def end(self) -> None:
        self._listener.forget(self)

    async def _look(self) -> tuple[bool, int | None]:
        await self._client.connected()
        if self._is_told() or await self._has_started():
            # Who has looked need not look again: that is one round trip less from an enqueue, or from a start time, to
            # a take. Perhaps another took the job: then the next wait looks.
            return True, None
        # Heard before it looks: both go over one connection, in this order, so that no bell falls between the two.
        self._listener.want(self, self._queues)
        heard = {name: (self._listener.filled[name], self._listener.changed[name]) for name in self._queues}
        takable, due_in, closed, starts = await self._client.call("look", (self._queues, True), rows.LOOK)
        self._heard = None if closed else heard
        due_at = None if due_in is None else self._timers.now() + due_in
        self._starts_at = due_at if starts else None
        return takable, cast("int | None", due_at)  # to a fraction of a ms: the timers can do it

    def _is_told(self) -> bool:
        """Whether a job became ready since the look, in a queue that was open."""
        filled = self._listener.filled
        return self._heard is not None and any(filled[name] > before for name, (before, _) in self._heard.items())

    async def _has_started(self) -> bool:
        """Whether the moment has come at which a job starts, and nothing was heard since of what may have become of it.

        One that comes within a ms is waited for: timers of some loops are early.
        """
        if self._starts_at is None or self._heard is None or (rest := self._starts_at - self._timers.now()) >= 1:
            return False
        if rest > 0:
            await asyncio.sleep(0.001)
        changed = self._listener.changed
        return all(changed[name] == before for name, (_, before) in self._heard.items())
