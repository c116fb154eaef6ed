"""A worker in the process of a test, and how to wait for what it does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from accoda import App, BatchReport, Worker, WorkerOptions
from accoda.settings import Settings


class Listener:
    """Keeps the reports of one worker."""

    def __init__(self) -> None:
        self.reports: list[BatchReport] = []

    def batch_started(self, queue: str, number: int | None, jobs: int) -> None: ...
    def batch_ended(self, report: BatchReport) -> None:
        self.reports.append(report)

    def processors_changed(self, running: int) -> None: ...

    @property
    def jobs(self) -> int:
        return sum(report.jobs for report in self.reports)


@asynccontextmanager
async def running(app: App, end: Callable[[Worker], None] = Worker.shutdown, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker; `end` says how it is asked to stop."""
    worker = Worker(app, WorkerOptions(**{"settings": Settings.load(environ={}), "managed": False, **options}))
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        end(worker)
        async with asyncio.timeout(20):
            await task


async def until(true: Callable[[], object], seconds: float = 20) -> None:
    """Until something is so; looked at again and again, because there is no event for it."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.002)
