"""Workers whose clocks differ by an hour: the server's clock decides, so nothing is early and nothing is late."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proof.servers.postgres import PostgresServer
from proof.servers.process import Process
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

from accoda import Done, NewJob, Store, open_storage

WORKER = Path(__file__).with_name("clock_worker.py")
JOBS = 120
TAKE_AND_VANISH = """
import sys, time
off = int(float(sys.argv[2]) * 1e9)
real = time.time_ns
time.time_ns = lambda: real() + off
time.time = lambda: time.time_ns() / 1e9
import asyncio, os
from accoda import ById, open_storage
async def main():
    store = await open_storage(sys.argv[1])
    (job,) = await store.take(sys.argv[3], 1, lease=2)
    info = (await store.look(ById(job.id))).job
    print(job.attempts, info.state, info.lease_until - info.taken_at, flush=True)
    os._exit(0)
asyncio.run(main())
"""


@pytest.fixture(params=[RedisServer, PostgresServer, TarantoolServer])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    make: Callable[[], Process] = request.param
    server = need(make)
    with server:
        yield server.url  # type: ignore[attr-defined]


async def test_workers_whose_clocks_differ_by_an_hour_share_the_work(url: str) -> None:
    async with await open_storage(url) as store:
        await store.pause("q", None)  # until both are there
        workers = [
            await asyncio.create_subprocess_exec(
                sys.executable, str(WORKER), url, str(off), str(JOBS), stdout=asyncio.subprocess.PIPE
            )
            for off in (-1800, 1800)
        ]
        async with asyncio.timeout(60):
            for worker in workers:
                assert worker.stdout is not None
                assert await worker.stdout.readline() == b"ready\n"
            await store.enqueue([NewJob("q", delay=n % 7 / 10) for n in range(JOBS)])
            await store.pause("q", 0)
            told = [(await worker.communicate())[0].decode() for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0]
        lines = [line.split() for text in told for line in text.splitlines()]
        assert sorted(int(line[0]) for line in lines) == sorted({int(line[0]) for line in lines}), "no job ran twice"
        assert len(lines) == JOBS
        assert {line[1] for line in lines} == {"0"}, "no lease ended before its time"
        assert {line[2] for line in lines} == {"False"}, "no delayed job was early"
        assert {line[3] for line in lines} == {"False"}, "no outcome was refused"
        assert all(told), "both had a share"
        stats = (await store.stats()).queues["q"]
        assert (stats.done, stats.total, stats.expired) == (JOBS, 0, 0)


async def test_the_lease_of_a_worker_that_vanished_ends_in_time_whatever_its_clock(url: str) -> None:
    async def vanish(store: Store, off: int, queue: str) -> None:
        [new] = await store.enqueue([NewJob(queue)])
        command = (sys.executable, "-c", TAKE_AND_VANISH, url, str(off), queue)
        worker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert (await worker.communicate())[0] == b"0 taken 2000\n", "not over at once"
        assert await store.wait([queue], 30), "nor an hour later"
        [job] = await store.take(queue, 1)
        assert (job.id, job.attempts) == (new.id, 1)
        assert await store.settle([Done(job.lease)]) == []

    async with asyncio.timeout(60), await open_storage(url) as store:
        await asyncio.gather(vanish(store, -3600, "early"), vanish(store, 3600, "late"))
