"""The worker in this process: turns, live settings, stopping, poison, stalls, heartbeats."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.running import Listener, running, until

from accoda import App, Batch, BatchReport, InvalidInput, ManualClock, StorageUnavailable, Worker, WorkerOptions
from accoda.connections import Connections
from accoda.runtime.heartbeat import read_heartbeats
from accoda.settings import Settings
from accoda.storage.memory import MemoryStorage
from accoda.storage.observed import Call, Observed
from accoda.storage.protocol import Store


class Fixed(Connections):
    """Connections that give one store, whatever it is."""

    def __init__(self, store: Store) -> None:
        super().__init__("memory://")
        self.opened = 0
        self.store = store

    async def open(self) -> Store:
        self.opened += 1
        return self.store

    async def put_back(self, store: Store) -> None: ...


def app_on(store: Store) -> App:
    app = App("memory://")
    app.connections = Fixed(store)
    return app


def settings(**worker: object) -> Settings:
    return Settings.load(environ={}, overrides=worker)


async def test_round_robin_gives_each_queue_its_share() -> None:
    calls: list[Call] = []
    app = app_on(Observed(MemoryStorage(), calls.append))
    sizes = {"a": 10, "b": 5, "c": 20}
    ran: list[tuple[str, int]] = []
    for name, size in sizes.items():

        @app.handler(name, batch=size)
        async def work(batch: Batch[int]) -> None:
            ran.append((batch.queue, len(batch)))

        await app.enqueue_many(name, range(size * 4))
    assert await app.run_until_idle() == 140
    assert ran[:12] == [("a", 10), ("b", 5), ("c", 20)] * 4
    takes = [call.queue for call in calls if call.verb == "take"]
    assert takes[:12] == ["a", "b", "c"] * 4


async def test_a_busy_loop_costs_one_round_trip_for_a_batch() -> None:
    calls: list[Call] = []
    app = app_on(Observed(MemoryStorage(), calls.append))

    @app.handler("a", batch=10)
    async def work(n: int) -> None: ...

    await app.enqueue_many("a", range(100))
    calls.clear()
    await app.run_until_idle()
    verbs = [call.verb for call in calls if call.queue == "a" or call.verb == "settle"]
    assert verbs.count("settle") == 10
    # Each settle goes with the next take: they are under way together, so no take comes after it alone.
    assert verbs.count("take") in (11, 12)


@pytest.mark.parametrize("kind", ["toml", "cdb"])
async def test_batch_size_and_processors_change_live(tmp_path: Path, kind: str) -> None:
    def write(batch_size: int, processors: int) -> None:
        new = tmp_path / f"new.{kind}"
        if kind == "toml":
            new.write_text(
                f"[worker.queue.default]\nmax_processors = {processors}\n[worker.queue.a]\nbatch_size = {batch_size}\n"
            )
        else:
            import cdblib

            with new.open("wb") as file, cdblib.Writer(file) as cdb:
                cdb.put(b"/accoda/worker/queue/default/max_processors", b"s%d" % processors)
                cdb.put(b"/accoda/worker/queue/a/batch_size", b"s%d" % batch_size)
        new.rename(tmp_path / f"settings.{kind}")

    write(3, 1)
    app = App("memory://")
    sizes: list[int] = []
    gate = asyncio.Semaphore(0)

    @app.handler("a", batch=50)
    async def work(batch: Batch[int]) -> None:
        sizes.append(len(batch))
        await gate.acquire()

    await app.enqueue_many("a", range(1000))
    loaded = Settings.load([str(tmp_path / f"settings.{kind}")], environ={})
    async with running(app, settings=loaded) as worker:
        await until(lambda: sizes == [3])
        write(7, 4)
        await until(lambda: worker.settings.worker("max_processors").value == 4)
        gate.release()
        await until(lambda: len(sizes) == 5)
        assert sizes == [3, 7, 7, 7, 7]  # four at a time now
        write(2, 1)
        await until(lambda: worker.settings.worker("max_processors").value == 1)
        for _ in range(4):
            gate.release()
        await until(lambda: len(sizes) == 6)
        assert sizes[5] == 2
        await until(lambda: len(worker.heartbeat().processors) == 1)
        gate.release()


async def test_a_queue_keeps_to_its_cap() -> None:
    app = App("memory://")
    now, most = 0, 0

    @app.handler("a", batch=1)
    async def work(n: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1

    await app.enqueue_many("a", range(40))
    capped = settings(max_processors=8, **{"worker/queue/a/max_processors": 3})
    worker = Worker(app, WorkerOptions(burst=True, settings=capped))
    await worker.run()
    assert worker.jobs_run == 40
    assert most == 3


async def test_stopping_finishes_what_runs_and_takes_no_more() -> None:
    app = App("memory://")
    started, gate = asyncio.Event(), asyncio.Event()
    saw_it_coming: list[bool] = []

    @app.handler("a", batch=2)
    async def work(batch: Batch[int]) -> None:
        started.set()
        await gate.wait()
        saw_it_coming.append(batch.stopping)

    await app.enqueue_many("a", range(10))
    async with running(app) as worker:
        await started.wait()
        stopping = asyncio.create_task(worker.graceful_stop(10))
        await asyncio.sleep(0.01)
        gate.set()
        assert await stopping is True
    stats = (await app.storage.stats()).queues["a"]
    assert (stats.done, stats.ready, stats.taken, stats.retried) == (2, 8, 0, 0)
    assert saw_it_coming == [True]


async def test_when_the_grace_is_over_the_jobs_go_back_at_once() -> None:
    app = App("memory://")
    started = asyncio.Event()

    @app.handler("a", batch=3)
    async def work(n: int) -> None:
        if n == 2:
            started.set()
        if n > 0:
            await asyncio.sleep(60)

    await app.enqueue_many("a", range(3))
    async with running(app) as worker:
        await started.wait()
        assert await worker.graceful_stop(0.01) is False
    stats = (await app.storage.stats()).queues["a"]
    assert (stats.done, stats.ready, stats.taken) == (1, 2, 0)  # the one that was finished is not run again


async def test_finished_jobs_of_a_long_batch_are_settled_while_the_others_run() -> None:
    app = App("memory://")
    gate = asyncio.Event()

    @app.handler("a", batch=3)
    async def work(n: int) -> None:
        if n == 2:
            await gate.wait()

    await app.enqueue_many("a", range(3))
    async with running(app, monitors=(listener := Listener(),)):
        async with asyncio.timeout(10):
            while (await app.storage.stats()).queues["a"].done < 2:
                await asyncio.sleep(0.01)
        assert not gate.is_set()
        gate.set()
    assert (await app.storage.stats()).queues["a"].done == 3
    assert sum(report.stats.processed for report in listener.reports) == 3
    assert [report.cycle > 0 for report in listener.reports] == [False, True]


async def test_a_running_job_that_is_cancelled_is_stopped_and_its_outcome_refused() -> None:
    app = App("memory://")
    ids: list[int] = []
    ended: list[str] = []

    @app.handler("a")
    async def work(n: int) -> None:
        ids.append(app.current.id)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    await work.enqueue(1)
    async with running(app, monitors=(listener := Listener(),)):
        await until(lambda: ids)
        assert await app.cancel(ids[0])
        await until(lambda: ended)
    job = await app.find(ids[0])
    assert job is not None and job.state == "cancelled"
    stats = [report.stats for report in listener.reports]
    assert [(each.cancelled, each.lost, each.errors) for each in stats] == [(1, 0, 0)]


async def test_a_handler_that_takes_too_long_fails_with_that_reason() -> None:
    app = App("memory://")

    @app.handler("a", timeout=0.05, retry=60)
    async def work(n: int) -> None:
        await asyncio.sleep(30 if n else 0)

    slow, fast = await work.enqueue(1), await work.enqueue(0)
    await app.run_until_idle()
    assert await app.find(fast.id) is None
    job = await app.find(slow.id)
    assert job is not None
    assert job.state == "delayed"
    assert "HandlerTimeout" in (job.reason or "")


async def test_jobs_that_lost_a_lease_run_apart_and_are_buried_where_their_crashes_have_a_limit() -> None:
    clock = ManualClock()
    app = App("memory://", clock=clock)
    batches: list[int] = []

    @app.handler("a", batch=10, max_crashes=5)
    async def work(batch: Batch[int]) -> None:
        batches.append(len(batch))

    await app.enqueue_many("a", range(3))
    await app.storage.take("a", 3, lease=1)  # a worker that dies with them
    clock.advance(2)
    await app.enqueue("a", 3)
    await app.enqueue("a", 4)
    await app.run_until_idle()
    assert batches == [2, 1, 1, 1]
    poison = await app.enqueue("a", 5)
    for _ in range(5):
        await app.storage.take("a", 1, lease=1)
        clock.advance(2)
    await app.run_until_idle()
    job = await app.find(poison.id)
    assert job is not None
    assert job.state == "dead"
    assert "poison: its lease ended 5 times" in (job.reason or "")
    assert batches == [2, 1, 1, 1]


async def test_before_a_likely_poison_runs_the_others_in_hand_are_given_back() -> None:
    clock = ManualClock()
    app = App("memory://", clock=clock)
    in_hand: list[int] = []

    @app.handler("a", batch=10, max_crashes=3)
    async def work(n: int) -> None:
        in_hand.append((await app.storage.stats()).queues["a"].taken)

    await app.enqueue_many("a", range(3))
    await app.storage.take("a", 3, lease=1)
    clock.advance(2)
    await app.run_until_idle()
    assert in_hand == [1, 1, 1]
    assert (await app.storage.stats()).queues["a"].done == 3


async def test_a_job_whose_workers_die_is_quarantined_for_longer_and_longer_but_never_buried() -> None:
    clock = ManualClock()
    app = App("memory://", clock=clock)
    ran_at: list[float] = []

    @app.handler("a", max_attempts=2)
    async def work(n: int) -> None:
        ran_at.append(clock.now() / 1000)

    id = (await app.enqueue("a", 0)).id
    for crashes, pause in ((1, 0), (2, 10), (3, 20), (4, 40)):
        await app.storage.take("a", 1, lease=1)  # a worker that dies with it
        clock.advance(1)
        ended = clock.now() / 1000
        if pause:
            await app.run_until_idle()
            job = await app.find(id)
            assert job is not None
            assert (job.state, job.tries, job.crashes) == ("delayed", 0, crashes)
            assert (job.reason or "").startswith(f"quarantined: its lease ended {crashes} times without an outcome")
            assert job.start_time / 1000 == ended + pause
            assert ran_at == []
            clock.advance(pause)
    await app.run_until_idle()
    assert ran_at == [ended + 40]
    stats = (await app.storage.stats()).queues["a"]
    assert (stats.done, stats.dead, stats.retried, stats.expired) == (1, 0, 3, 4)


class Flaky(MemoryStorage):
    """A store that can be away, and remembers nothing of what it was asked then. `extend` always works: the keeper has
    a connection of its own."""

    away = False
    refused = 0

    def _look(self) -> None:
        if self.away:
            self.refused += 1
            raise StorageUnavailable("away")

    async def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        self._look()
        return await super().enqueue(*args, **kwargs)

    async def take(self, *args: Any, **kwargs: Any) -> Any:
        self._look()
        return await super().take(*args, **kwargs)

    async def settle(self, *args: Any, **kwargs: Any) -> Any:
        self._look()
        return await super().settle(*args, **kwargs)


async def test_outcomes_wait_for_a_store_that_is_away() -> None:
    store = Flaky()
    app = app_on(store)
    ran: list[int] = []

    @app.handler("a", batch=1)
    async def work(n: int) -> None:
        ran.append(n)
        store.away = n == 0

    await app.enqueue_many("a", [0])
    async with running(app):
        await until(lambda: ran)
        await asyncio.sleep(0.3)
        assert (await store.stats()).queues["a"].taken == 1
        store.away = False
        async with asyncio.timeout(10):
            while (await store.stats()).queues["a"].done < 1:
                await asyncio.sleep(0.01)
        await app.enqueue("a", 1)
        await until(lambda: ran == [0, 1])


async def test_follow_ups_of_a_batch_wait_for_a_store_that_is_away() -> None:
    store = Flaky()
    app = app_on(store)
    ran: list[int] = []

    @app.handler("a", batch=2)
    async def work(batch: Batch[int]) -> None:
        ran.append(len(batch))
        store.away = True
        batch.enqueue("b", "next")
        for job in batch:
            batch.bury(job, "none is done, so none can carry the follow-up")

    await app.enqueue_many("a", [0, 1])
    async with running(app):
        await until(lambda: ran)
        await asyncio.sleep(0.3)
        assert (await store.stats()).queues["a"].taken == 2
        store.away = False
        async with asyncio.timeout(10):
            while (await store.stats()).queues["a"].dead < 2:
                await asyncio.sleep(0.01)
    assert ran == [2]
    assert (await store.stats()).queues["b"].ready == 1


async def test_finished_jobs_of_a_long_batch_keep_their_leases_while_the_store_is_away() -> None:
    store = Flaky()
    app = app_on(store)
    gate = asyncio.Event()
    ran: list[int] = []

    @app.handler("a", batch=2, lease=0.9)
    async def work(n: int) -> None:
        ran.append(n)
        if n == 0:
            store.away = True
        else:
            await gate.wait()

    await app.enqueue_many("a", [0, 1])
    async with running(app):
        # Its outcome is first sent after a second; then its lease must outlast the store's absence.
        await until(lambda: store.refused >= 2)
        await asyncio.sleep(1.2)
        taken = (await store.stats()).queues["a"].taken
        gate.set()
        await asyncio.sleep(0.1)
        store.away = False
        async with asyncio.timeout(10):
            while (await store.stats()).queues["a"].done < 2:
                await asyncio.sleep(0.01)
    stats = (await store.stats()).queues["a"]
    assert (sorted(ran), taken, stats.done, stats.expired) == ([0, 1], 2, 2, 0)


class Picky(MemoryStorage):
    """A store that will not have an outcome of one job, as of one that was damaged while it was taken."""

    async def settle(self, outcomes: Any) -> Any:
        if any(outcome.lease.id == 2 for outcome in outcomes):
            raise InvalidInput("lease", "is no lease")
        return await super().settle(outcomes)


async def test_an_outcome_that_the_store_will_not_have_keeps_no_other_from_its_end() -> None:
    store = Picky()
    app = app_on(store)

    @app.handler("a", batch=3)
    async def work(n: int) -> None: ...

    await app.enqueue_many("a", range(3))
    async with running(app, monitors=(listener := Listener(),)):
        await until(lambda: listener.reports)
    stats = (await store.stats()).queues["a"]
    assert (stats.done, stats.taken) == (2, 1)
    assert [(report.stats.processed, report.stats.lost) for report in listener.reports] == [(2, 1)]


class Deaf(MemoryStorage):
    """A store whose `wait` never wakes: what a lost subscription looks like."""

    deaf = True

    def __init__(self) -> None:
        super().__init__()
        self.waiting = asyncio.Event()

    async def wait(self, queues: Any, timeout: float) -> bool:
        self.waiting.set()
        if self.deaf:
            await asyncio.sleep(3600)
        return await super().wait(queues, timeout)


async def test_a_silent_stall_is_found_and_mended(caplog: pytest.LogCaptureFixture) -> None:
    store = Deaf()
    app = app_on(store)
    ran: list[int] = []

    @app.handler("a")
    async def work(n: int) -> None:
        ran.append(n)

    quick = settings(stall_after=0.2, heartbeat=0.1)
    async with running(app, settings=quick) as worker:
        await store.waiting.wait()
        await app.enqueue("a", 1)
        await until(lambda: worker.problem)
        assert not worker.ready
        assert "1 jobs are ready in a and 1 processors are free" in worker.problem
        await until(lambda: ran)
        await until(lambda: worker.ready)
        assert app.connections.opened >= 2  # type: ignore[attr-defined]
    assert "stalled: 1 jobs are ready in a" in caplog.text


async def test_the_heartbeat_tells_the_worker_and_what_it_runs() -> None:
    app = App("memory://")
    started, gate = asyncio.Event(), asyncio.Event()

    @app.handler("a", batch=5)
    async def work(n: int) -> None:
        started.set()
        await gate.wait()

    await app.enqueue_many("a", range(5))
    async with running(app, settings=settings(heartbeat=0.05, max_processors=2), name="default") as worker:
        await started.wait()
        await asyncio.sleep(0.2)
        [beat] = await read_heartbeats(app.storage)
        assert (beat.id, beat.pid, beat.queues, beat.max_processors) == (worker.id, os.getpid(), ("a",), 2)
        busy = [processor for processor in beat.processors if processor.queue]
        assert [(p.queue, p.jobs) for p in busy] == [("a", 5)]
        assert abs((busy[0].since or 0) / 1000 - time.time()) < 60
        gate.set()
    assert await read_heartbeats(app.storage) == []  # it said goodbye


async def test_a_monitor_that_fails_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Listener):
        def batch_ended(self, report: BatchReport) -> None:
            raise ValueError("broken monitor")

    app = App("memory://")

    @app.handler("a")
    async def work(n: int) -> None: ...

    await work.enqueue(1)
    worker = Worker(app, WorkerOptions(burst=True, monitors=(Broken(),), settings=settings()))
    await worker.run()
    assert (await app.storage.stats()).queues["a"].done == 1
    assert "broken monitor" in caplog.text


async def test_queues_without_a_handler_are_refused() -> None:
    app = App("memory://")
    with pytest.raises(InvalidInput, match="no handlers"):
        Worker(app)

    @app.handler("a")
    async def work(n: int) -> None: ...

    with pytest.raises(InvalidInput, match="no handler for 'b'; there is one for a"):
        Worker(app, WorkerOptions(queues=("b",)))


async def test_a_burst_serves_what_its_own_jobs_enqueue() -> None:
    app = App("memory://")

    @app.handler("a")
    async def count_down(n: int) -> None:
        if n:
            await app.enqueue("b", n - 1)

    @app.handler("b")
    async def bounce(n: int) -> None:
        app.current.enqueue("a", n)

    await app.enqueue("a", 20)
    assert await app.run_until_idle() == 41
