"""A worker takes its first job when everything is up: a start that fails costs no job anything."""

import asyncio
import importlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest
import pytest_asyncio

from accoda import App, Store, Worker, WorkerOptions, open_storage
from accoda.model import NewJob, QueueStats
from accoda.payload import encode
from accoda.runtime import pool_access
from accoda.settings import Settings

PATH = os.pathsep.join((str(Path(__file__).parent), *sys.path))


class Place(NamedTuple):
    folder: Path
    store: Store

    def start(self, *words: str, broken: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "accoda", "worker", "starting_jobs:app", *words]
        url = f"sqlite:///{self.folder}/jobs.db"
        environment = {**os.environ, "ACCODA_URL": url, "BREAK": broken, "PYTHONPATH": PATH, "COLUMNS": "1000"}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60)

    async def stats(self) -> list[QueueStats]:
        return list((await self.store.stats()).queues.values())

    def mark_as_newer(self, newer: bool) -> None:
        """Make the file one of a later Accoda, or undo it."""
        connection = apsw.Connection(str(self.folder / "jobs.db"))
        step = 1 if newer else -1
        connection.pragma("user_version", int(connection.pragma("user_version")) + step)
        connection.close()


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    (tmp_path / "bad.toml").write_text("[worker.queue.default]\nmax_processors = 'many'\n")
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db") as store:
        await store.enqueue([NewJob(queue, encode(n)) for queue in ("plain", "pooled") for n in range(10)])
        yield Place(tmp_path, store)


class Step(NamedTuple):
    """A step of the start, and with which exit code and message it fails. Its words or `broken` make it fail."""

    name: str
    code: int
    message: str
    words: tuple[str, ...] = ()


STEPS = [
    Step("settings", 2, "max_processors", ("--settings", "bad.toml")),
    Step("queues", 2, "there is no handler for 'no-such'", ("-q", "no-such")),
    Step(
        "port",
        1,
        "it is in use, perhaps by another worker; choose another with --metrics-port",
        ("--metrics-port", "{port}"),
    ),
    Step("import", 1, "cannot import starting_jobs: RuntimeError: the configuration is missing"),
    Step("pool", 1, "cannot load the handler pooled from starting_jobs: RuntimeError: the model is missing"),
    Step("pool-dies", 1, "cannot load the handler pooled from starting_jobs: the process died: it ended with status 7"),
    Step("middleware", 2, "middleware: NotAnInstance is a class; pass an async function of (batch, run)"),
    Step("store", 3, "newer"),
]
SUPERVISED = [step for step in STEPS if step.name in ("settings", "port", "pool", "store")]


@pytest.mark.parametrize(
    ("step", "supervised"),
    [(step, False) for step in STEPS] + [(step, True) for step in SUPERVISED],
    ids=lambda value: value.name if isinstance(value, Step) else "processes" if value else "alone",
)
async def test_a_start_that_fails_tells_why_and_costs_no_job_anything(
    place: Place, step: Step, supervised: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [word.format(port=taken.getsockname()[1]) for word in step.words]
        words += ["--processes", "2"] if supervised else []
        if step.name == "store":
            place.mark_as_newer(True)
        failed = await asyncio.to_thread(place.start, *words, broken=step.name)
        if step.name == "store":
            place.mark_as_newer(False)
    assert (failed.returncode, step.message in failed.stderr) == (step.code, True), failed.stderr
    for stats in await place.stats():
        assert (stats.ready, stats.taken, stats.retried, stats.expired, stats.dead) == (10, 0, 0, 0, 0)


async def test_after_failed_starts_a_good_one_does_every_job_on_its_first_attempt(place: Place) -> None:
    await asyncio.to_thread(place.start, broken="pool")
    good = await asyncio.to_thread(place.start, "--burst")
    assert good.returncode == 0, good.stderr
    for stats in await place.stats():
        assert (stats.done, stats.retried, stats.expired, stats.dead) == (10, 0, 0, 0)


MODULE = """
import os
from pathlib import Path
from accoda import App

if Path(__file__).with_name("broken").exists():
    {breaks}
app = App("memory://")

# One at a time, so that it is the first job that has the one child there is.
@app.handler("pooled", run_in="process", max_attempts=1, concurrency=1)
def pooled(kill: bool) -> None:
    if kill:
        os._exit(9)
"""


@pytest.mark.parametrize("breaks", ["1 / 0", "os._exit(3)"])
async def test_jobs_are_given_back_untried_while_no_child_can_be_started_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    name = f"later_{'exit' if 'exit' in breaks else 'error'}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(breaks=breaks))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(pool_access, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(pool_access, "LONGEST_PAUSE", 0.2)
    app: App = importlib.import_module(name).app
    worker = Worker(app, WorkerOptions(managed=False, settings=Settings.load(environ={})))
    await worker.init()
    (tmp_path / "broken").touch()  # a deploy
    await app.enqueue("pooled", True)  # its child ends, and another one is needed
    await app.enqueue_many("pooled", [False] * 20)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        while not worker.problem:
            await asyncio.sleep(0.01)
        assert not worker.ready
        assert "a child process cannot load the handler pooled" in worker.readiness()[1]
        while (stats := (await app.storage.stats()).queues["pooled"]).ready != 20:
            await asyncio.sleep(0.01)
        assert (stats.dead, stats.expired) == (1, 0)  # the one that ended its child
        given_back = await app.storage.browse("pooled", "ready")
        assert {(job.attempts, job.tries) for job in given_back} <= {(0, 0), (1, 0)}
        (tmp_path / "broken").unlink()
        while (stats := (await app.storage.stats()).queues["pooled"]).done != 20:
            await asyncio.sleep(0.01)
        assert worker.ready
        await worker.graceful_stop()
        await running


async def test_a_worker_that_is_stopped_before_it_runs_ends_at_once() -> None:
    app = App("memory://")

    @app.handler("q")
    async def work(n: int) -> None: ...

    await app.enqueue("q", 1)
    worker = Worker(app, WorkerOptions(settings=Settings.load(environ={})))
    await worker.init()
    assert worker.readiness() == (False, "the worker is starting")
    worker.shutdown()
    async with asyncio.timeout(30):
        await worker.run()
    assert (await app.storage.stats()).queues["q"].ready == 1
