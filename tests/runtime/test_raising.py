"""Whatever a handler raises, in whatever runner: its job is not done, and the worker lives on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.runtime import raising_jobs
from tests.runtime.raising_jobs import ASKED, RAISED

from accoda import App, JobInfo, Worker, WorkerOptions
from accoda.connections import Connections
from accoda.operations.jobs import failed_runs
from accoda.settings import Settings

QUEUES = tuple(raising_jobs.app.handlers)
# Python itself turns these into a RuntimeError where they would leave a coroutine.
TURNED = {"StopIteration": "RuntimeError: coroutine raised StopIteration"}


@pytest.fixture
def app() -> Iterable[App]:
    app = raising_jobs.app
    kept, app.connections = app.connections, Connections("memory://")
    raising_jobs.begun.clear()
    yield app
    app.connections = kept


@asynccontextmanager
async def running(app: App, queue: str, processors: int = 1) -> AsyncIterator[Worker]:
    settings = Settings.load(environ={}, overrides={"max_processors": processors})
    worker = Worker(app, WorkerOptions(queues=(queue,), settings=settings, managed=False, system_jobs=False))
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        yield worker
        worker.shutdown()
        await task
        await app.connections.close()


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.005)


async def jobs(app: App, queue: str) -> list[JobInfo]:
    """All jobs of the queue, in whatever state they wait."""
    return [job for state in ("ready", "taken", "delayed", "dead") for job in await app.storage.browse(queue, state)]


@pytest.mark.parametrize("queue", QUEUES)
async def test_whatever_a_handler_raises_is_a_failed_try_and_the_worker_lives_on(app: App, queue: str) -> None:
    cases = [(what, when) for what in RAISED for when in (("", "waited") if "loop" in queue else ("",))]
    made = dict(zip([job.id for job in await app.enqueue_many(queue, cases)], cases, strict=True))
    await app.enqueue(queue, ("nothing", ""))
    async with running(app, queue) as worker:
        await until(lambda: worker.jobs_run == len(cases) + 1)
        assert worker.ready
        found = {made[job.id]: job for job in await jobs(app, queue)}
        assert {case: (job.state, job.tries, job.crashes) for case, job in found.items()} == dict.fromkeys(
            cases, ("delayed", 1, 0)
        )
        for (what, _), job in found.items():
            assert (job.reason or "").startswith((what, TURNED.get(what, what))), job.reason
        assert (await app.storage.stats()).queues[queue].done == 1


@pytest.mark.parametrize("queue", QUEUES)
async def test_a_retry_that_is_asked_for_is_an_error_only_if_an_error_is_its_cause(app: App, queue: str) -> None:
    made = dict(zip(ASKED, await app.enqueue_many(queue, [(what, "") for what in ASKED]), strict=True))
    async with running(app, queue) as worker:
        await until(lambda: worker.jobs_run == len(ASKED))
        found = {what: await app.find(job.id) for what, job in made.items()}
        sums = worker.heartbeat().sums[queue]
    assert (sums.errors, sums.retried) == (2, len(ASKED))
    assert {what: job and job.reason for what, job in found.items()} == {
        "asked": "RetryLater: busy",
        "without a reason": "RetryLater: asked to run later",
        "of a retry": "RetryLater: asked to run later",
        "of an error": "ValueError: 17",
        "of an error, with a reason": "RetryLater: busy",
    }


@pytest.mark.parametrize("queue", QUEUES)
async def test_whatever_a_handler_raises_when_the_worker_leaves_its_job_is_given_back(
    app: App, queue: str, tmp_path: Path
) -> None:
    whats, when = tuple(RAISED), "stopped"
    if "process" in queue:  # it is killed, so that it does not matter what it would raise
        whats, when = whats[:1], str(tmp_path / "begun")
    await app.enqueue_many(queue, [(what, when) for what in whats])
    async with running(app, queue, processors=len(whats)) as worker:
        await until(lambda: len(raising_jobs.begun) == len(whats) or Path(when).exists())
        assert not await worker.graceful_stop(0)
        found = await jobs(app, queue)
        assert [(job.state, job.tries, job.crashes) for job in found] == [("ready", 0, 0)] * len(whats)
        assert {job.reason for job in found} == {"WorkerStopped: the worker was stopped"}


@pytest.mark.parametrize("queue", ["process-single", "process-async"])
async def test_a_stored_traceback_begins_in_the_users_code(app: App, queue: str) -> None:
    made = await app.enqueue(queue, ("ValueError", ""))
    async with running(app, queue):
        while not (runs := await failed_runs(app, made.id)):  # a chore notes it, every second
            await asyncio.sleep(0.02)
    [run] = runs
    first = run.traceback.splitlines()[1]
    assert "raising_jobs.py" in first and "src/accoda" not in run.traceback, run.traceback
