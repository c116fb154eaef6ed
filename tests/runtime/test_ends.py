"""Every kind of handler, and every kind of end: what becomes of the job, and what is counted.

| end          | the job                                | tries | counted as       |
| ------------ | -------------------------------------- | ----- | ---------------- |
| returns      | done, with its result                  | 0     | processed        |
| raises       | delayed, with the error as reason      | 1     | error, retried   |
| raises Base… | delayed, with the error as reason      | 1     | error, retried   |
| over time    | delayed, `HandlerTimeout`              | 1     | error, retried   |
| lease lost   | as the new holder leaves it            | 0     | lost             |
| cancelled    | cancelled                              | 0     | cancelled        |
| worker stops | ready, given back                      | 0     | retried          |
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from tests.runtime import ends_jobs
from tests.runtime.ends_jobs import KINDS

from accoda import App, BatchReport, JobInfo, Remove, Worker, WorkerOptions
from accoda.connections import Connections
from accoda.payload import decode
from accoda.settings import Settings

ENDS = ("return", "raise", "base", "timeout", "lost", "cancel", "stop")
WAITS = ("timeout", "lost", "cancel", "stop")


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db"
        return
    server = need(lambda: RedisServer().start())
    try:
        yield server.url
    finally:
        server.stop()


class Counts:
    """Adds up what the worker reports."""

    def __init__(self) -> None:
        self.jobs = self.processed = self.errors = self.retried = self.lost = self.cancelled = 0

    def batch_started(self, queue: str, number: int | None, jobs: int) -> None: ...
    def processors_changed(self, running: int) -> None: ...

    def batch_ended(self, report: BatchReport) -> None:
        self.jobs += report.jobs
        for name in ("processed", "errors", "retried", "lost", "cancelled"):
            setattr(self, name, getattr(self, name) + getattr(report.stats, name))


async def find(app: App, id: int) -> JobInfo:
    found = await app.find(id)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_each_end_of_each_kind_of_handler(url: str, kind: str, tmp_path: Path) -> None:
    app, counts = ends_jobs.app, Counts()
    kept, app.connections = app.connections, Connections(url)
    settings = Settings.load(environ={}, overrides={"max_processors": 7})
    options = WorkerOptions(queues=(kind,), settings=settings, managed=False, system_jobs=False, monitors=(counts,))
    worker = Worker(app, options)
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(60):
            ids = {}
            for end in ENDS:
                type = "timed" if end == "timeout" else None
                ids[end] = (await app.enqueue(kind, [end, str(tmp_path / end)], type=type)).id
            while not all((tmp_path / end).exists() for end in WAITS):
                await asyncio.sleep(0.01)
            assert await app.cancel(ids["cancel"])
            assert await app.storage.change([Remove(ids["lost"])]) == 1
            while counts.jobs < len(ENDS) - 1:
                await asyncio.sleep(0.01)
            assert (await find(app, ids["stop"])).state == "taken"
            worker.abort()
            await running
        done = await find(app, ids["return"])
        assert (done.state, decode(done.result or b"")) == ("done", "finished")
        for end, error in (
            ("raise", "ValueError: no such user"),
            ("base", "KeyboardInterrupt"),
            ("timeout", "HandlerTimeout"),
        ):
            job = await find(app, ids[end])
            assert (job.state, job.tries, job.crashes) == ("delayed", 1, 0), end
            assert error in (job.reason or ""), end
        assert await app.find(ids["lost"]) is None
        assert (await find(app, ids["cancel"])).state == "cancelled"
        stopped = await find(app, ids["stop"])
        assert (stopped.state, stopped.tries, stopped.crashes) == ("ready", 0, 0)
        assert (counts.processed, counts.errors, counts.retried, counts.lost, counts.cancelled) == (1, 3, 4, 1, 1)
    finally:
        worker.abort()
        await asyncio.gather(running, return_exceptions=True)
        await app.connections.close()
        app.connections = kept
