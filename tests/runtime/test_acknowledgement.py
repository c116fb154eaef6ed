"""What a batch handler may say of its jobs beside returning: explicitly, by counting itself, through the storage."""

import asyncio

from tests.runtime.running import Listener

from accoda import App, Batch, BatchReport, Bury, Done, HandlerStats, ManualClock, Retry, Worker, WorkerOptions
from accoda.envelope import unwrap
from accoda.runtime.envelope_outcome import DeadJob
from accoda.runtime.metrics.monitor import done_jobs
from accoda.settings import Settings


async def run(app: App) -> list[BatchReport]:
    listener = Listener()
    await Worker(app, WorkerOptions(burst=True, managed=False, monitors=(listener,))).run()
    return listener.reports


async def test_what_an_explicit_handler_says_nothing_of_is_left_to_its_lease_and_that_is_no_crash() -> None:
    clock = ManualClock()
    app, seen = App("memory://", clock=clock), list[list[int]]()

    @app.handler("a", settle="explicit", lease=0.2)
    async def work(batch: Batch[int]) -> None:
        seen.append([job.payload for job in batch])
        batch.done(batch[0])

    ids = [job.id for job in await app.enqueue_many("a", range(3))]
    settings = Settings.load(environ={}, overrides={"heartbeat": 0.02})
    worker = Worker(app, WorkerOptions(settings=settings, managed=False, system_jobs=False))
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        while (await app.storage.stats()).queues["a"].done < 1:
            await asyncio.sleep(0.002)
        assert (await app.storage.stats()).queues["a"].taken == 2, "they stay taken until their leases end"
        first, second = await app.storage.browse("a", "taken")
        clock.advance(0.3)
        while len(seen) < 2:
            await asyncio.sleep(0.002)
        while (found := await app.find(ids[1])) is not None and found.crashes:
            await asyncio.sleep(0.01)
    worker.abort()
    await task
    assert seen[:2] == [[0, 1, 2], [1, 2]]
    assert (first.id, second.id) == (ids[1], ids[2])


async def test_a_handler_that_raises_retries_also_what_it_said_nothing_of() -> None:
    app = App("memory://")

    @app.handler("a", settle="explicit", retry=3600)
    async def work(batch: Batch[int]) -> None:
        batch.done(batch[0])
        raise ValueError("no")

    await app.enqueue_many("a", range(3))
    await app.run_until_idle()
    stats = (await app.storage.stats()).queues["a"]
    assert (stats.done, stats.delayed, stats.taken) == (1, 2, 0)


async def test_a_handler_may_count_by_itself() -> None:
    app = App("memory://")

    @app.handler("a")
    async def work(batch: Batch[int]) -> HandlerStats:
        return HandlerStats(processed=1, errors=2, last_error="two were odd")

    await app.enqueue_many("a", range(3))
    (report,) = await run(app)
    assert (report.jobs, report.stats) == (3, HandlerStats(processed=1, errors=2, last_error="two were odd"))


async def test_a_handler_that_counts_by_itself_does_not_say_what_became_of_its_jobs() -> None:
    app = App("memory://")

    @app.handler("a")
    async def work(batch: Batch[int]) -> HandlerStats:
        batch.retry(batch[0], delay=30)
        return HandlerStats(processed=500, retried=7, buried=9)  # rows of jobs, say

    await app.enqueue_many("a", range(3))
    (report,) = await run(app)
    assert (report.jobs, done_jobs(report)) == (3, 2)
    assert report.stats == HandlerStats(processed=500, retried=1)


async def test_a_retry_with_an_error_counts_as_both_and_one_without_as_a_retry_alone() -> None:
    app = App("memory://")

    @app.handler("a")
    async def work(batch: Batch[int]) -> None:
        batch.retry(batch[0], delay=30, error=ValueError("no such user"))
        batch.retry(batch[1], delay=30, reason="later")

    first, _ = await app.enqueue_many("a", range(2))
    (report,) = await run(app)
    assert (report.stats.errors, report.stats.retried) == (1, 2)
    assert report.stats.last_error == "ValueError: no such user"
    found = await app.find(first.id)
    assert found is not None and found.reason == "ValueError: no such user"


async def test_what_a_handler_settles_itself_is_counted_as_what_it_was() -> None:
    app = App("memory://")

    @app.handler("a")
    async def work(batch: Batch[int]) -> None:
        one, two, three, _ = batch
        retry, bury = Retry(two.job.lease, delay=30, reason="later"), Bury(three.job.lease, "enough")
        assert await app.storage.settle([Done(one.job.lease), retry, bury]) == []

    await app.enqueue_many("a", range(4))
    (report,) = await run(app)
    assert (report.jobs, report.stats.processed, report.stats.lost) == (4, 2, 0)
    assert (report.stats.retried, report.stats.buried) == (1, 1)
    stats = (await app.storage.stats()).queues["a"]
    assert (stats.done, stats.delayed, stats.dead) == (2, 1, 1)


async def test_on_dead_gets_a_job_in_the_step_that_buries() -> None:
    app, told = App("memory://"), list[DeadJob]()

    @app.handler("obituaries")
    async def tell(dead: DeadJob) -> None:
        told.append(dead)

    @app.handler("work", type="mail", max_attempts=1, on_dead=tell, secret=("card",))
    async def mail(payload: dict[str, str]) -> None:
        raise ValueError(f"no {payload['card']}")

    job = await mail.enqueue({"to": "anna", "card": "4111-1111-1111"}, headers={"tenant": "acme"})
    assert await app.run_until_idle(["work"]) == 1
    (info,) = await app.storage.browse("obituaries", "ready")
    await app.run_until_idle()
    (dead,) = told
    assert (dead.id, dead.queue, dead.type, dead.headers) == (job.id, "work", "mail", {"tenant": "acme"})
    assert dead.payload == {"to": "anna", "card": "4111-1111-1111"} and "•••" in dead.reason
    assert unwrap(info.data)[0].secret == ("payload.card",)
