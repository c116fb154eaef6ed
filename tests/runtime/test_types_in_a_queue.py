"""Several kinds of work in one queue: each job goes to the handler of its type, in one order."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from accoda import App, Batch, ManualClock, Priority, Worker, WorkerOptions
from accoda.runtime.logs import LogMonitor
from accoda.settings import Settings


@asynccontextmanager
async def running(app: App, *queues: str) -> AsyncIterator[Worker]:
    worker = Worker(app, WorkerOptions(queues=queues, settings=Settings.load(environ={}), managed=False))
    task = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(20):
            yield worker
    finally:
        worker.abort()
        await task


async def test_a_job_goes_to_the_handler_of_its_type_and_the_others_to_the_one_without() -> None:
    app, ran = App("memory://"), list[tuple[str, object]]()

    @app.handler("work", type="mail")
    async def mail(to: str) -> None:
        ran.append(("mail", to))

    @app.handler("work", type="sums")
    def sums(numbers: list[int]) -> None:
        ran.append(("sums", numbers))

    @app.handler("work")
    async def rest(payload: object) -> None:
        ran.append((f"rest {app.current.type}", payload))

    await mail.enqueue("anna")
    await app.enqueue("work", [1, 2], type="sums")
    await app.enqueue("work", "x")
    await app.enqueue("work", "y", type="new")
    assert await app.run_until_idle() == 4
    assert sorted(map(str, ran)) == sorted(
        map(str, [("mail", "anna"), ("sums", [1, 2]), ("rest None", "x"), ("rest new", "y")])
    )


async def test_the_order_is_over_all_types() -> None:
    app, ran = App("memory://"), list[str]()

    @app.handler("work", type="a", concurrency=1)
    async def a(name: str) -> None:
        ran.append(name)

    @app.handler("work", type="b")
    def b(name: str) -> None:
        ran.append(name)

    await a.enqueue("low", priority=Priority.LOW)
    await b.enqueue("normal")
    await a.enqueue("high", priority=Priority.HIGH)
    await b.enqueue("critical", priority=Priority.CRITICAL)
    await app.run_until_idle()
    assert ran == ["critical", "high", "normal", "low"]


async def test_a_batch_handler_gets_the_jobs_of_its_type_that_a_take_brought() -> None:
    app, batches = App("memory://"), list[list[int]]()

    @app.handler("work", type="whole")
    async def whole(batch: Batch[int]) -> None:
        batches.append([job.payload for job in batch])

    @app.handler("work", type="single")
    async def single(n: int) -> None: ...

    for n in range(20):
        await app.enqueue("work", n, type="whole" if n % 2 else "single")
    assert await app.run_until_idle() == 20
    assert batches == [[1, 3, 5, 7, 9], [11, 13, 15, 17, 19]]


async def test_a_type_that_nobody_handles_waits_for_a_worker_that_does(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    old = App("memory://", clock=clock)

    @old.handler("work", type="known")
    async def known(n: int) -> None: ...

    new = await old.enqueue("work", 1, type="new")
    await old.enqueue("work", 2, type="new")
    log = LogMonitor()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            await Worker(old, WorkerOptions(burst=True, managed=False, monitors=(log,))).run()
            log.flush()
            clock.advance(30)
    job = await old.find(new.id)
    assert job is not None and (job.attempts, job.tries, job.crashes) == (3, 0, 0)
    assert job.reason == "given back: no handler of this queue in this worker handles the type new"
    told = [vars(record) for record in caplog.records if "handles the type new" in record.getMessage()]
    assert len(told) == 3, "once for each worker"
    assert all((each["queue"], each["type"], each["attempt"]) == ("work", "new", 1) for each in told)
    await old.run_until_idle()
    paused = await old.find(new.id)
    assert paused is not None and paused.start_time == clock.now() + 8_000, "the pauses grow"

    app, ran = App("memory://", clock=clock), list[int]()
    app.connections = old.connections

    @app.handler("work", type="new")
    async def handle(n: int) -> None:
        ran.append(n)

    async with running(app):
        while len(ran) < 2:  # at once: no pause has to end
            await asyncio.sleep(0.002)


async def test_a_job_without_a_type_where_only_typed_handlers_are_waits_too() -> None:
    app = App("memory://", clock=ManualClock())

    @app.handler("work", type="a")
    async def a(n: int) -> None: ...

    @app.handler("work", type="b")
    async def b(n: int) -> None: ...

    job = await app.enqueue("work", 1)
    await app.run_until_idle()
    found = await app.find(job.id)
    assert found is not None and (found.reason or "").endswith("handles jobs without a type")
