"""A backup of the server's files is put back: ids and attempts come again, and no lease from before fits."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from proof.proxy import Proxy
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need

from accoda import App, Batch, BatchReport, Worker, WorkerOptions
from accoda.model import Bury, Done, Job, NewJob, Outcome, Refused, Retry
from accoda.settings import Settings
from accoda.storage.postgres import PostgresStorage
from accoda.storage.protocol import Store

JOBS = 20


class Reports:
    """What a worker tells of its batches, in the order in which they ended."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[BatchReport] = asyncio.Queue()

    def batch_started(self, queue: str, number: int | None, jobs: int) -> None: ...

    def batch_ended(self, report: BatchReport) -> None:
        self.ended.put_nowait(report)

    def processors_changed(self, running: int) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with need(lambda: PostgresServer(durable=False)) as running:
        yield running


def tokens(jobs: list[Job]) -> list[tuple[int, int]]:
    return [(job.id, job.attempts) for job in jobs]


async def enqueued_and_taken(store: Store, data: bytes) -> list[Job]:
    await store.enqueue([NewJob("work", data)] * JOBS)
    jobs = await store.take("work", JOBS)
    assert [job.data for job in jobs] == [data] * JOBS
    return jobs


async def test_old_leases_are_refused_and_new_ones_accepted(store: PostgresStorage, server: PostgresServer) -> None:
    (before,) = await store.enqueue([NewJob("other")])
    (kept,) = await store.take("other", 1)  # the backup has this lease, too
    backup = await asyncio.to_thread(server.copy)
    old = await enqueued_and_taken(store, b"old")
    assert await store.extend([job.lease for job in old], 3600) == []
    await asyncio.to_thread(server.put_back, backup)
    new = await enqueued_and_taken(store, b"new")
    assert tokens(new) == tokens(old), "ids and attempts come again: that is what this test is about"

    stats = await store.stats()
    lost = [Refused(job.lease, "lost") for job in old]
    then = [NewJob("work", b"then")]
    ways: list[Any] = [lambda lease: Done(lease, then=then), Done, Retry, lambda lease: Bury(lease, "old", then)]
    for outcome in ways:
        assert await store.settle([outcome(job.lease) for job in old]) == lost
    assert await store.extend([job.lease for job in old], 3600) == lost
    assert await store.stats() == stats

    assert await store.extend([job.lease for job in new], 3600) == []
    outcomes: list[Outcome] = [*(Done(job.lease) for job in new[1:]), Retry(new[0].lease)]
    assert await store.settle(outcomes) == []
    assert await store.settle([Done(kept.lease)]) == [], f"job {before.id} is the same as before"


async def test_a_busy_worker_does_not_end_a_job_that_it_has_not_run(
    store: PostgresStorage, server: PostgresServer, schema: str, url: str
) -> None:
    """The worker sees an outage. When it is over, another one holds new jobs under the tokens that the worker has."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    ended: list[str] = []
    reports = Reports()
    with Proxy(server.port) as proxy:
        app = App(f"{server.url_at(proxy.port)}?schema={schema}")

        @app.handler("work", batch=JOBS)
        async def work(batch: Batch[str]) -> None:
            begun.set()
            await go_on.wait()
            ended.extend(job.payload for job in batch)

        backup = await asyncio.to_thread(server.copy)
        settings = Settings.load(environ={}, overrides={"max_processors": 1})
        worker = Worker(app, WorkerOptions(settings=settings, managed=False, system_jobs=False, monitors=(reports,)))
        async with asyncio.timeout(60), app, App(url) as producer, asyncio.TaskGroup() as tasks:
            first = await app.enqueue_many("work", [f"old {n}" for n in range(JOBS)])
            tasks.create_task(worker.run())
            await begun.wait()
            with proxy.during(cut=True):
                await asyncio.to_thread(server.put_back, backup)
                second = await producer.enqueue_many("work", [f"new {n}" for n in range(JOBS)])
                assert [each.id for each in second] == [each.id for each in first], "ids come again"
                holder = await store.take("work", JOBS)
                assert [job.attempts for job in holder] == [0] * JOBS
                go_on.set()
            assert (await reports.ended.get()).stats.lost == JOBS
            assert await store.settle([Retry(job.lease, counts=False) for job in holder]) == []
            assert (await reports.ended.get()).stats.processed == JOBS
            worker.shutdown()
        queue = (await store.stats()).queues["work"]
    assert [each for each in ended if each.startswith("new")] == [f"new {n}" for n in range(JOBS)]
    assert (queue.done, queue.total) == (JOBS, 0)
