"""Vacuums the jobs' table while work is fast.

A job leaves dead index entries behind where takers look for the head of the line, and until a vacuum every take walks
over them: with a million and a half, work runs at half its rate. The server's own vacuum comes once a minute at most,
by its default; so whoever settles many jobs looks now and then how many dead rows there are, and does it earlier.
Where work is slow, the server's own is enough. docs/decisions/0005-postgres.md has the figures.
"""

from __future__ import annotations

import asyncio
import contextlib

from accoda.errors import StorageClosed
from accoda.storage.postgres.client import Client
from accoda.storage.postgres.connector import close
from accoda.storage.postgres.errors import DRIVER

LOOK_EVERY = 10_000  # settled jobs, by this process
MOST_DEAD = 100_000


class Upkeep:
    """Counts settled jobs; runs the vacuum beside the calls, on a connection of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._settled = 0
        self._task: asyncio.Task[None] | None = None

    def note(self, settled: int) -> None:
        self._settled += settled
        if self._settled >= LOOK_EVERY and self._task is None and asyncio.get_running_loop() is self._client.loop:
            self._settled = 0
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            # An error is dropped: the server's own vacuum will come.
            with contextlib.suppress(*DRIVER, StorageClosed):
                connection = await self._client.connect()
                try:
                    if await connection.fetchval(self._client.queries["dead_rows"]) > MOST_DEAD:
                        await connection.execute(self._client.queries["vacuum"])
                finally:
                    await close(connection)
        finally:
            self._task = None
