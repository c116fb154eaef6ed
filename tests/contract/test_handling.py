"""Generated handlers: a context, the storage for their jobs, the jobs as records; and what their contract says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from accoda import (
    App,
    BatchReport,
    ContractError,
    Exponential,
    HandlerStats,
    InvalidInput,
    ManualClock,
    Worker,
    WorkerOptions,
)
from accoda.contract import HandlerContext, JobStorage, generate, parse
from accoda.contract.export import export

CONTRACT = """
queues:
  - id: 1
    name: emails
    batch: 10
    concurrency: 20
    lease: 90s
    timeout: 30s
    retry: {first: 2s, longest: 1m, jitter: false}
    max_attempts: 8
    max_crashes: 3
    keep_for: 1h
    keep_dead_for: 7d
    fields:
      - {name: to, type: string}
      - {name: subject, type: string, default: ""}
      - {name: body, type: "[]byte", default: ""}
  - {id: 2, name: log, retry: 30s, fields: [{name: line, type: string}]}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("handled")
    package = folder / "handled_queues"
    package.mkdir()
    for name, text in generate(parse(CONTRACT), aliases=True).items():
        (package / name).write_text(text)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("handled_queues")
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.startswith("handled_queues")]:
        del sys.modules[name]


class Reports:
    """Hears what the worker tells."""

    def __init__(self) -> None:
        self.stats: list[HandlerStats] = []

    def batch_started(self, queue: str, number: int | None, jobs: int) -> None: ...

    def processors_changed(self, running: int) -> None: ...

    def batch_ended(self, report: BatchReport) -> None:
        self.stats.append(report.stats)


async def run(made: Any, handle: Any, *to: str, clock: ManualClock | None = None) -> tuple[App, list[HandlerStats]]:
    """Enqueue an email to each address, and let a worker call `handle` for them once."""

    class Mine:
        async def handle_emails(self, ctx: HandlerContext, storage: JobStorage[Any], jobs: list[Any]) -> Any:
            return await handle(ctx, storage, jobs)

        async def handle_log(self, ctx: HandlerContext, storage: JobStorage[Any], jobs: list[Any]) -> None:
            """Nothing is said, so the jobs stay taken until their leases end."""

    app = made.dispatcher(made.Handlers(Mine(), Mine()), App("memory://", clock=clock or ManualClock(1_000_000)))
    await made.Queues(app).emails.enqueue_many([made.EmailsJob(to=each) for each in to])
    reports = Reports()
    worker = Worker(app, WorkerOptions(queues=("emails",), burst=True, managed=False, monitors=(reports,)))
    await worker.run()
    return app, reports.stats


async def refuse(address: str) -> None:
    if "@" not in address:
        raise ValueError(f"{address!r} is no address")


async def test_the_handler_of_the_typed_runtime_counts_its_own_jobs(made: Any) -> None:
    """Two are sent, one fails and is tried again in 30 seconds: 2 processed, 1 error, 1 retried, and the last error."""

    async def handle(ctx: HandlerContext, storage: JobStorage[Any], jobs: list[Any]) -> HandlerStats:
        processed, failed, last_error = 0, 0, ""
        for job in jobs:
            try:
                await refuse(job.to)
            except ValueError as error:
                failed, last_error = failed + 1, str(error)
                storage.retry(job, delay=30)
            else:
                processed += 1
                storage.done(job)
        return HandlerStats(processed=processed, errors=failed, retried=failed, last_error=last_error)

    app, [stats] = await run(made, handle, "anna@x", "ben@x", "carla")
    assert stats == HandlerStats(processed=2, errors=1, retried=1, last_error="'carla' is no address")
    [job] = await app.storage.browse("emails", "delayed")
    assert (job.start_time, job.attempts) == (1_030_000, 1)


async def test_a_handler_that_returns_nothing_is_counted(made: Any) -> None:
    async def handle(ctx: HandlerContext, storage: JobStorage[Any], jobs: list[Any]) -> None:
        for job in jobs:
            try:
                await refuse(job.to)
            except ValueError as error:
                storage.retry(job, delay=30, error=error)
            else:
                storage.done(job)

    _, [stats] = await run(made, handle, "anna@x", "ben@x", "carla")
    assert (stats.processed, stats.errors, stats.retried) == (2, 1, 1)
    assert "'carla' is no address" in stats.last_error


async def test_what_nothing_is_said_of_comes_back_when_its_lease_ends(made: Any) -> None:
    async def handle(ctx: HandlerContext, storage: JobStorage[Any], jobs: list[Any]) -> None:
        storage.done(jobs[0])

    clock = ManualClock(1_000_000)
    app, _ = await run(made, handle, "anna@x", "ben@x", clock=clock)
    stats = (await app.storage.stats()).queues["emails"]
    assert (stats.taken, stats.ready) == (1, 0)
    clock.advance(90)
    [job] = await app.storage.take("emails", 5)
    assert job.attempts == 1


async def test_jobs_are_put_in_the_step_in_which_another_is_done(made: Any) -> None:
    async def handle(ctx: HandlerContext, storage: JobStorage[Any], jobs: list[Any]) -> None:
        for job in jobs:
            storage.put("log", made.LogJob(line=f"sent to {job.to}"), after=job)
            storage.put("log", made.LogJob(line=f"saw {job.to}"))
        storage.done(jobs[0])
        storage.bury(jobs[1], "unknown")

    app, _ = await run(made, handle, "anna@x", "ben@x")
    lines = [made.deserialize_log(job.data).line for job in await app.storage.take("log", 9)]
    assert sorted(lines) == ["saw anna@x", "saw ben@x", "sent to anna@x"]
    [dead] = await app.storage.browse("emails", "dead")
    assert dead.reason == "unknown"


async def test_a_handler_hears_its_deadline_and_of_a_stop_and_only_of_its_own_jobs(made: Any) -> None:
    seen: list[object] = []

    async def handle(ctx: HandlerContext, storage: JobStorage[Any], jobs: list[Any]) -> None:
        seen.extend((ctx.deadline, ctx.stopping, len(ctx.batch)))
        ctx.batch.stopping = True
        seen.append(ctx.stopping)
        with pytest.raises(InvalidInput, match="77 is none of the jobs"):
            storage.done(made.EmailsJob(job_id=77, to="x"))
        storage.done(*jobs)

    await run(made, handle, "anna@x")
    assert seen == [1_030_000, False, 1, True]


async def test_a_contract_says_what_a_handler_would(made: Any) -> None:
    app = made.dispatcher(made.Handlers(object(), object()), App("memory://"))
    options = app.handlers["emails"].options
    assert (options.number, options.batch, options.concurrency, options.lease) == (1, 10, 20, 90.0)
    assert (options.timeout, options.max_attempts, options.max_crashes) == (30.0, 8, 3)
    assert (options.keep_for, options.keep_dead_for) == (3600.0, 7 * 86_400.0)
    assert options.retry == Exponential(first=2.0, longest=60.0, jitter=False)
    assert app.handlers["log"].options.retry(5, ValueError()) == 30.0
    assert parse(export(app.handlers)[0]) == parse(CONTRACT)
    await made.Queues(producer := App("memory://")).emails.enqueue(to="a@x")
    [job] = await producer.storage.browse("emails", "ready")
    assert job.keep_for == 3600.0


class Letter(Struct, array_like=True):
    to: str


def test_options_that_a_contract_has_no_key_for_are_noted() -> None:
    app = App("memory://")
    app.budget("mail", capacity=10, refill=10, per=60)

    @app.handler("letters", budget="mail", cost=lambda _: 1, retry=lambda tries, error: None, max_attempts=3)
    async def post(letter: Letter) -> None: ...

    text, notes = export(app.handlers)
    assert notes == ["letters: a contract cannot say its cost, retry, budgets: keep its handler in code"]
    assert "    max_attempts: 3\n    fields:" in text


def test_the_names_of_a_task_are_written_by_choice(made: Any) -> None:
    task = made.EmailsTask(job_id=7, attempts=2, prev_start_time=5, to="a@x")
    assert made.EmailsTask is made.EmailsJob
    assert (task.TaskID, task.Attempts, task.PrevStartTime) == (7, 2, 5)
    data = made.SerializeEmailsTask(task)
    assert made.DeserializeEmailsTask(data, 7, 2, 5) == task
    plain = generate(parse(CONTRACT))
    assert not any("Task" in text for text in plain.values())
    field = "fields: [{name: a, type: int}]"
    twins = parse(f"queues: [{{id: 1, name: x, {field}}}, {{id: 2, name: serialize_x, {field}}}]")
    with pytest.raises(ContractError, match="two queues would have the alias SerializeXTask; rename one"):
        generate(twins, aliases=True)
    generate(twins)
