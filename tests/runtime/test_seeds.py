"""What the seeds say of handlers, workers and the manager, on every storage."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.runtime.running import Listener, running, until

from accoda import (
    App,
    Batch,
    BatchReport,
    Done,
    HandlerStats,
    ManualClock,
    Priority,
    Retry,
    RetryLater,
    Worker,
    WorkerOptions,
)
from accoda.model import JobInfo, QueueStats
from accoda.operations import workers
from accoda.runtime import rotation
from accoda.runtime.heartbeat import QueueSums, read_heartbeats
from accoda.runtime.manager import Assignment
from accoda.runtime.manager.manager import ASSIGNMENT, LEADER
from accoda.settings import Settings


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app


async def run(app: App, *queues: str) -> list[BatchReport]:
    listener = Listener()
    await Worker(app, WorkerOptions(queues=queues, burst=True, managed=False, monitors=(listener,))).run()
    return listener.reports


async def counts(app: App, queue: str) -> QueueStats:
    return (await app.storage.stats()).queues[queue]


async def job(app: App, id: int) -> JobInfo:
    found = await app.find(id)
    assert found is not None
    return found


# -- order and priority


async def test_critical_jobs_go_first_whatever_their_type(app: App) -> None:
    ran: list[str] = []

    @app.handler("line", type="report", concurrency=1)
    async def report(name: str) -> None:
        ran.append(name)

    @app.handler("line", type="mail")
    async def mail(name: str) -> None:
        ran.append(name)

    for n in range(6):
        await report.enqueue(f"LOW{n}", priority=Priority.LOW)
        await mail.enqueue(f"CRIT{n}", priority=Priority.CRITICAL)
    await app.run_until_idle(["line"])
    assert ran == [f"CRIT{n}" for n in range(6)] + [f"LOW{n}" for n in range(6)]


async def test_a_retry_changes_the_priority_in_the_same_step(app: App) -> None:
    ran: list[str] = []

    @app.handler("requeued", concurrency=1)
    async def single(name: str) -> None:
        ran.append(name)
        if name == "later" and app.current.attempts == 0:
            raise RetryLater("not now", delay=0, priority=Priority.LOW)

    @app.handler("requeued-batch", batch=1, policy="aging")
    async def whole(batch: Batch[str]) -> None:
        batch.retry(batch[0], delay=60, priority=Priority.CRITICAL)

    for name in ("later", "one", "two"):
        await single.enqueue(name)
    aging = await whole.enqueue("sooner", priority=Priority.LOW)
    await app.run_until_idle(["requeued", "requeued-batch"])
    assert ran == ["later", "one", "two", "later"]
    found = await job(app, aging.id)
    assert (found.state, found.attempts) == ("delayed", 1)
    assert abs(found.rank - found.created_at) < 60_000, "the rank of CRITICAL, and the job has kept its age"


# -- what a handler says of its jobs


class Email(msgspec.Struct):
    to: str
    subject: str = ""
    body: bytes = b""


async def send_email(to: str, subject: str, body: bytes) -> None:
    if to == "nobody":
        raise ConnectionError("the server hung up")


@pytest.mark.parametrize("counts_itself", [True, False], ids=["own stats", "counted"])
async def test_the_example_handler_of_the_seed(app: App, counts_itself: bool) -> None:
    queue = f"emails-{counts_itself}"

    @app.handler(queue, settle="explicit")
    async def handle_emails(tasks: Batch[Email]) -> HandlerStats | None:
        done, retries, last_error = [], [], ""
        for task in tasks:
            try:
                await send_email(task.payload.to, task.payload.subject, task.payload.body)
            except ConnectionError as error:
                last_error = str(error)
                if counts_itself:
                    retries.append(Retry(task.job.lease, delay=30))
                else:
                    tasks.retry(task, delay=30, error=error)
            else:
                done.append(Done(task.job.lease))
        await app.storage.settle(done)
        await app.storage.settle(retries)
        if not counts_itself:
            return None
        return HandlerStats(processed=len(done), errors=len(retries), retried=len(retries), last_error=last_error)

    made = await handle_emails.enqueue_many([Email("anna"), Email("nobody"), Email("ben")])
    [report] = await run(app, queue)
    stats = report.stats
    assert (stats.processed, stats.errors, stats.retried) == (2, 1, 1)
    assert "the server hung up" in stats.last_error
    found, there = await job(app, made[1].id), await counts(app, queue)
    assert (found.state, found.attempts, there.done, there.total) == ("delayed", 1, 2, 1)
    assert found.prev_start_time is not None
    assert 30_000 <= found.start_time - found.prev_start_time < 90_000


async def test_what_a_handler_settles_through_the_storage_is_counted_so(app: App) -> None:
    @app.handler("settled")
    async def work(batch: Batch[int]) -> None:
        done = [Done(job.job.lease) for job in batch.jobs[:3]]
        assert await app.storage.settle([*done, *(Retry(job.job.lease, delay=60) for job in batch.jobs[3:])]) == []

    await work.enqueue_many(range(5))
    [report] = await run(app, "settled")
    assert (report.stats.processed, report.stats.retried, report.stats.lost) == (3, 2, 0)


async def test_what_a_handler_says_nothing_of_comes_back_when_its_lease_ends(app: App) -> None:
    runs: list[list[int]] = []

    @app.handler("unsaid", settle="explicit", lease=0.5)
    async def work(batch: Batch[int]) -> None:
        runs.append([job.attempts for job in batch])
        for job in batch.jobs[: 1 if len(runs) == 1 else 5]:
            batch.done(job)

    made = await work.enqueue_many(range(5))
    async with running(app, queues=("unsaid",), system_jobs=False):
        await until(lambda: len(runs) == 1)
        there = await counts(app, "unsaid")
        assert (there.taken, there.done) == (4, 1) or (there.done == 0 and there.taken == 5)
        await until(lambda: sum(len(each) for each in runs[1:]) == 4)
    assert runs[0] == [0] * 5 and {attempts for each in runs[1:] for attempts in each} == {1}
    there = await counts(app, "unsaid")
    assert (there.done, there.expired, there.total) == (5, 4, 0)
    assert await app.find(made[0].id) is None


@pytest.mark.parametrize("ends", ["renew", "timeout"])
async def test_a_handler_that_hangs_gives_its_job_back_though_its_worker_lives(app: App, ends: str) -> None:
    queue, attempts, stopped = f"hangs-{ends}", list[int](), asyncio.Event()
    options: dict[str, Any] = {"renew": False, "lease": 0.6} if ends == "renew" else {"timeout": 0.2, "retry": 0}
    crashes: list[int] = []

    @app.handler(queue, **options)
    async def work(n: int) -> str:
        attempts.append(app.current.attempts)
        if len(attempts) > 1:
            while (await job(app, app.current.id)).crashes:  # a lease that ends in a living worker is no crash
                await asyncio.sleep(0.01)
            crashes.append(0)
            return "in time"
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopped.set()
        return "too late"

    made = await work.enqueue(1, keep_for=60)
    listener = Listener()
    async with running(app, queues=(queue,), system_jobs=False, monitors=(listener,)):
        assert await app.result(made.id, timeout=20) == "in time"
    assert attempts == [0, 1] and crashes == [0] and stopped.is_set()
    there, found = await counts(app, queue), await job(app, made.id)
    lost = sum(report.stats.lost for report in listener.reports)
    if ends == "renew":
        assert (there.done, there.expired, there.retried, found.tries, lost) == (1, 1, 0, 0, 1), (
            "its outcome was refused"
        )
    else:
        assert (there.done, there.expired, there.retried, found.tries, lost) == (1, 0, 1, 1, 0)


async def test_a_job_whose_workers_die_is_never_buried_by_itself(url: str) -> None:
    clock = ManualClock()
    async with App(url, clock=clock) as app:

        @app.handler("deadly")
        async def work(n: int) -> None: ...

        made = await work.enqueue(1)
        for _ in range(6):
            assert len(await app.storage.take("deadly", 1, lease=1, worker="one that dies")) == 1
            clock.advance(1)
        await app.run_until_idle(["deadly"])
        found = await job(app, made.id)
        assert (found.state, found.crashes) == ("delayed", 6) and "quarantined" in (found.reason or "")
        clock.advance(3600)
        await app.run_until_idle(["deadly"])
        there = await counts(app, "deadly")
        assert (there.done, there.dead, there.buried, there.expired) == (1, 0, 0, 6)


async def test_the_heartbeat_says_what_the_handlers_did(app: App) -> None:
    @app.handler("reported", secret=("card",), retry=3600)
    async def work(order: dict[str, str]) -> None:
        if order["card"]:
            raise ValueError(f"no such card: {order['card']}" + "." * 500)

    await work.enqueue_many([{"card": ""}, {"card": ""}, {"card": "4111-1111-1111"}])
    settings = Settings.load(environ={}, overrides={"heartbeat": 0.05})
    async with running(app, queues=("reported",), settings=settings, system_jobs=False, managed=False) as worker:
        sums = QueueSums()
        async with asyncio.timeout(20):
            while sums.processed + sums.errors < 3:
                await asyncio.sleep(0.02)
                beats = [beat for beat in await read_heartbeats(app.storage) if beat.id == worker.id]
                sums = beats[0].sums.get("reported", sums) if beats else sums
        view = (await workers.get(app, worker.id)).stats["reported"]
    assert (sums.jobs, sums.processed, sums.errors, sums.retried) == (3, 2, 1, 1)
    assert sums.ran > 0 and len(sums.last_error) == 200
    assert sums.last_error.startswith("ValueError: no such card: ") and "4111" not in sums.last_error
    assert (view.processed, view.errors, view.retried, view.last_error) == (2, 1, 1, sums.last_error)


# -- stopping by cancellation


class Slow:
    """A handler that has begun and ends when it is let go."""

    def __init__(self, app: App, queue: str) -> None:
        self.begun, self.go, self.ended = asyncio.Event(), asyncio.Event(), list[str]()

        @app.handler(queue)
        async def work(n: int) -> None:
            self.begun.set()
            try:
                await self.go.wait()
                self.ended.append("done")
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise


def serve(app: App, queue: str) -> asyncio.Task[None]:
    options = WorkerOptions(queues=(queue,), settings=Settings.load(environ={}), managed=False, system_jobs=False)
    return asyncio.create_task(Worker(app, options).run())


async def test_to_cancel_run_lets_the_current_handler_call_end(app: App) -> None:
    slow = Slow(app, "cancelled")
    await app.enqueue("cancelled", 1)
    task = serve(app, "cancelled")
    await slow.begun.wait()
    task.cancel()
    await asyncio.sleep(0.05)  # were the handler stopped, it would be by now
    assert not slow.ended and not task.done()
    await app.enqueue("cancelled", 2)
    slow.go.set()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await task
    there = await counts(app, "cancelled")
    assert slow.ended == ["done"] and (there.done, there.taken, there.retried) == (1, 0, 0)
    assert there.ready == 1, "nothing is taken any more"


async def test_to_cancel_run_twice_gives_the_jobs_back_at_once(app: App) -> None:
    slow = Slow(app, "twice")
    made = await app.enqueue("twice", 1)
    task = serve(app, "twice")
    await slow.begun.wait()
    task.cancel()
    await asyncio.sleep(0.05)
    assert not slow.ended and not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await task
    found = await job(app, made.id)
    assert slow.ended == ["cancelled"] and (found.state, found.attempts, found.tries) == ("ready", 1, 0)


async def test_a_timeout_and_a_task_group_around_run_end_as_they_should() -> None:
    app = App("memory://")
    slow = Slow(app, "around")
    await app.enqueue("around", 1)
    asyncio.get_running_loop().call_later(0.05, slow.go.set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await serve(app, "around")
    assert slow.ended == ["done"]

    async def fail() -> None:
        await slow.begun.wait()
        asyncio.get_running_loop().call_later(0.02, slow.go.set)
        raise LookupError("a sibling failed")

    slow.begun.clear()
    slow.go.clear()
    await app.enqueue("around", 2)
    worker = Worker(app, WorkerOptions(settings=Settings.load(environ={}), managed=False, system_jobs=False))
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            group.create_task(fail())
    assert [type(error) for error in caught.value.exceptions] == [LookupError]
    assert slow.ended == ["done", "done"] and (await counts(app, "around")).done == 2


# -- with a manager that is silent


class Silence:
    """Two workers of two queues, whose manager has given all processors to the first one, and is silent since."""

    def __init__(self, url: str, name: str) -> None:
        self.clock = ManualClock()
        self.app = App(url, clock=self.clock)
        self.queues = (f"{name}-a", f"{name}-b")
        self.listeners = Listener(), Listener()
        for queue in self.queues:
            self.app.handler(queue, concurrency=1)(self._work)
        settings = Settings.load(environ={}, overrides={"max_processors": 4})
        self.workers = [
            Worker(
                self.app,
                WorkerOptions(queues=self.queues, settings=settings, monitors=(listener,), system_jobs=False),
            )
            for listener in self.listeners
        ]

    async def _work(self, n: int) -> None:
        await asyncio.sleep(0.005)

    async def start(self, count: int) -> list[asyncio.Task[None]]:
        """Run so many of them, the last ones. The assignment has ended since."""
        one, two = self.workers
        said = Assignment({one.id: {self.queues[0]: 3, self.queues[1]: 1}, two.id: {}})
        await self.app.storage.write(LEADER, b'{"worker": "a silent one"}', ttl=1e6)
        await self.app.storage.write(ASSIGNMENT, msgspec.json.encode(said), ttl=10)
        tasks = [asyncio.create_task(worker.run()) for worker in self.workers[-count:]]
        for worker in self.workers[-count:]:
            await until(lambda: worker._started)  # noqa: B023 - called before the next round
        self.clock.advance(60)
        for worker in self.workers[-count:]:
            await worker._manage()
        assert await self.app.storage.read(ASSIGNMENT) is None
        return tasks

    async def ran(self, count: int) -> None:
        await until(lambda: sum(listener.jobs for listener in self.listeners) == count)

    async def stop(self, tasks: list[asyncio.Task[None]]) -> None:
        for worker in self.workers:
            worker.shutdown()
        await asyncio.gather(*tasks)
        await self.app.storage.write(LEADER, b"", ttl=0)
        await self.app.close()


async def test_with_a_silent_manager_a_worker_keeps_its_distribution_and_an_idle_one_stays_idle(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "LEFT_FOR", 20.0)
    silence = Silence(url, "silent")
    tasks = await silence.start(2)
    turns = silence.workers[0]._ready_context().rotation
    assert [turns._queues[queue].share for queue in silence.queues] == [3, 1]
    for queue in silence.queues:
        await silence.app.enqueue_many(queue, range(20))
    await silence.ran(40)
    assert [listener.jobs for listener in silence.listeners] == [40, 0]
    await silence.stop(tasks)


async def test_no_job_waits_for_a_worker_that_the_silent_manager_chose_and_that_died(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "LEFT_FOR", 0.05)
    silence = Silence(url, "orphans")
    tasks = await silence.start(1)  # the one that was given both queues never comes
    for queue in silence.queues:
        await silence.app.enqueue_many(queue, range(20))
    await silence.ran(40)
    assert [listener.jobs for listener in silence.listeners] == [0, 40]
    await silence.stop(tasks)


async def test_a_worker_that_is_given_nothing_more_takes_nothing_more_when_its_job_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rotation, "LEFT_FOR", 20.0)
    app = App("memory://")
    slow = Slow(app, "given")
    app.handler("other")(lambda: None)
    await app.enqueue("given", 1)
    await app.storage.write(LEADER, b'{"worker": "another"}', ttl=3600)
    async with running(app, Worker.abort, managed=True, system_jobs=False) as worker:
        await slow.begun.wait()
        said = Assignment({"another": {"given": 1}, worker.id: {}})
        await app.storage.write(ASSIGNMENT, msgspec.json.encode(said), ttl=10)
        await worker._manage()
        await app.enqueue_many("given", range(5))
        slow.go.set()
        await until(lambda: worker.jobs_run == 1)
        await asyncio.sleep(0.05)  # were it to take more, it would have by now
        there = await counts(app, "given")
        assert (there.done, there.ready, worker.jobs_run) == (1, 5, 1)


async def test_a_worker_logs_how_many_delayed_jobs_became_ready(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.handler("delayed")
    async def work(n: int) -> None: ...

    settings = Settings.load(environ={}, overrides={"heartbeat": 0.05})
    with caplog.at_level(logging.DEBUG, "accoda.worker"):
        async with running(app, queues=("delayed",), settings=settings, system_jobs=False) as worker:
            await until(lambda: worker._promoted is not None)
            await work.enqueue_many(range(5), delay=0.1)
            await until(lambda: _promoted(caplog) == 5)


def _promoted(caplog: pytest.LogCaptureFixture) -> int:
    told = [record.args for record in caplog.records if record.msg.startswith("promoted %d delayed")]
    return sum(args[0] for args in told if isinstance(args, tuple) and isinstance(args[0], int))
