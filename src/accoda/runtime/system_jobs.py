"""Runs Accoda's own jobs beside the handlers': ticks of schedules, calls of webhooks, replays of dead letters, bulk
changes, rounds of the history.

Each kind has a loop of its own, over a system queue. Every worker runs them and so does the HTTP service; however many
there are, a job is done by one of them, as with any queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from accoda.storage.protocol import Store

AGAIN = 5.0
"""Seconds until a kind of jobs that failed is taken up again."""

log = logging.getLogger("accoda.system_jobs")


class SystemJob(Protocol):
    """The jobs of one system queue. `run` may be cancelled at any moment, and loses nothing by it."""

    queue: str

    async def run_once(self, store: Store) -> int:
        """Do what is due now; the number of jobs that were settled."""
        ...

    async def run(self, store: Store) -> None:
        """Do what comes due, for ever."""
        ...


class SystemJobs:
    """Runs system jobs over a store. May be started and closed twice without harm."""

    def __init__(self, store: Store, jobs: Sequence[SystemJob]) -> None:
        self._store = store
        self._jobs = jobs
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin, on the running event loop."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._run(job), name=f"accoda-{job.queue}") for job in self._jobs]

    async def close(self) -> None:
        """Leave off. What is in hand goes back."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run_once(self) -> int:
        """Do what is due now, of every kind; the number of jobs that were settled."""
        settled = 0
        for job in self._jobs:
            try:
                settled += await job.run_once(self._store)
            except Exception as error:  # the other kinds must be done all the same
                log.error("the system jobs of %s are left to other processes: %s", job.queue, error)
        return settled

    async def run(self) -> None:
        """Work until cancelled."""
        self.start()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.close()

    async def _run(self, job: SystemJob) -> None:
        while True:
            try:
                await job.run(self._store)
            except Exception:  # a mistake of ours: the other jobs, and later this one, must go on
                log.exception("the system jobs of %s failed; they continue in %g s", job.queue, AGAIN)
            await asyncio.sleep(AGAIN)
