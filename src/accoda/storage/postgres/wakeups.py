"""Hears from other processes, and from this one, which queues have something new: LISTEN."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from accoda.clock import Clock
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.common.wakeups import HintedWakeUps
from accoda.storage.postgres.client import Client
from accoda.storage.postgres.connection import connect
from accoda.storage.postgres.errors import DRIVER

READY = "+"  # before the queue's name: a job is ready there. No name begins so.
PING_EACH = 30.0  # seconds without a word after which the listening connection is asked whether it is there still
PING_PATIENCE = 10.0
_FIRST_NAP, _LONGEST_NAP = 0.05, 2.0


class Listener(HintedWakeUps):
    """One connection that listens, made for the first `wait`. Lives in the client's event loop."""

    def __init__(self, client: Client, clock: Clock | None) -> None:
        super().__init__(clock)
        self._client = client
        self._task: asyncio.Task[None] | None = None
        self._listens = asyncio.Event()

    async def listen(self) -> None:
        """Return when notifications are heard, or when it is clear that they are not for now."""
        self._client.affinity.check()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen())
        await self._listens.wait()
        self._client.affinity.check()

    async def close(self) -> None:
        """Stop listening. The storage is closed already, so it does not begin again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._listens.set()
        self.wake()  # callers that wait find the storage closed

    async def _listen(self) -> None:
        backoff = Backoff(_FIRST_NAP, _LONGEST_NAP)
        away_since: float | None = None
        while True:
            try:
                await self._listen_once(backoff)
                away_since = None
            except DRIVER as error:
                away_since = away_since or asyncio.get_running_loop().time()
                self._client.outages.note(away_since, error)
            self._listens.set()  # a wait does not wait for a server that is away: it looks from time to time
            await backoff.nap()

    async def _listen_once(self, backoff: Backoff) -> None:
        connection = await connect(self._client.place)
        try:
            gone = asyncio.Event()
            connection.add_termination_listener(lambda _: gone.set())
            await connection.add_listener(self._client.place.schema, self._notified)
            backoff.reset()
            self._listens.set()
            self.wake()  # for whatever was told while this process did not listen
            while not gone.is_set():
                await _ping(connection, gone)
        finally:
            connection.terminate()

    def _notified(self, connection: Any, process: int, channel: str, news: str) -> None:
        self.hear(news.removeprefix(READY), ready=news.startswith(READY))


async def _ping(connection: Any, gone: asyncio.Event) -> None:
    """Wait a while for the end of a connection; then ask for a word. One that gives none raises TimeoutError."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PING_EACH):
            await gone.wait()
            return
    async with asyncio.timeout(PING_PATIENCE):
        await connection.fetchval("SELECT 1")
