"""Vacuums the jobs' table while work is fast.

A job leaves dead index entries behind where takers look for the head of the line, and until a vacuum every take walks
over them: with a million and a half, work runs at half its rate. The server's own vacuum comes once a minute at most,
by its default; so a process that settles many jobs looks now and then how many dead rows there are, and does it
earlier. Where work is slow, the server's own is enough. docs/decisions/0005-postgres.md has the figures.
"""

from __future__ import annotations

import asyncio
import contextlib

from accoda.storage.postgres.client import Client
from accoda.storage.postgres.connection import connect
from accoda.storage.postgres.errors import DRIVER

LOOK_EVERY = 10_000  # settled jobs, by this process
MOST_DEAD = 100_000


class Vacuum:
    """Runs beside the calls, on a connection of its own."""

    def __init__(self, client: Client) -> None:
        self._place = client.place
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look how many dead rows there are, and vacuum if there are many; unless that is under way."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        jobs = f'"{self._place.schema}".jobs'
        try:
            # An error is dropped: the server's own vacuum will come.
            with contextlib.suppress(*DRIVER):
                connection = await connect(self._place)
                try:
                    # By the server's statistics, which are a second old at most.
                    dead = await connection.fetchval(f"SELECT pg_stat_get_dead_tuples('{jobs}'::regclass)")
                    if dead > MOST_DEAD:
                        # SKIP_LOCKED: not if another session is at it. Index clean-up is the point.
                        options = "SKIP_LOCKED, INDEX_CLEANUP on, TRUNCATE off, PARALLEL 0"
                        await connection.execute(f"VACUUM ({options}) {jobs}")
                finally:
                    connection.terminate()
        finally:
            self._task = None
