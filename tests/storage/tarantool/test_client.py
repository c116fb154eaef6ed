"""What a Tarantool storage does when the server, a client or the network fails: calls survive their connection."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Self, TypeVar

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer, administer

from accoda import (
    Bury,
    ById,
    ByKey,
    Done,
    Head,
    NewJob,
    Refused,
    Remove,
    Rerank,
    Revive,
    StartNow,
    Store,
    open_storage,
)
from accoda.errors import StorageClosed, StorageFull, StorageUnavailable
from accoda.model import Job, Lanes

T = TypeVar("T")
JOBS = 20_000
Q = "q"


@pytest.fixture(scope="module")
def server() -> Iterator[TarantoolServer]:
    with need(lambda: TarantoolServer("fsync")) as server:
        yield server


@pytest_asyncio.fixture
async def store(server: TarantoolServer) -> AsyncIterator[Store]:
    async with await open_storage(server.url) as store:
        for state in ("ready", "taken", "dead", "delayed"):
            await store.purge(Q, state)
        yield store


async def restart(server: TarantoolServer) -> None:
    server.kill()
    await asyncio.to_thread(server.start)


class Ledger:
    """What was acknowledged to this process, to be held against the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.stored: set[int] = set()
        self.finished: set[int] = set()
        self.in_the_middle = asyncio.Event()

    async def produce(self) -> None:
        for _ in range(0, JOBS, 250):
            self.stored |= {answer.id for answer in await self.store.enqueue([NewJob(Q, b"x" * 50)] * 250)}

    async def consume(self) -> None:
        while len(self.finished) < JOBS:
            if jobs := await self.store.take(Q, 50, lease=60):
                await self.finish(jobs)
            else:
                await self.store.wait([Q], 1)

    async def finish(self, jobs: list[Job]) -> None:
        ids = {job.id for job in jobs}
        assert not ids & self.finished, "a job whose end was acknowledged came back"
        assert await self.store.settle([Done(job.lease) for job in jobs]) == []
        self.finished |= ids
        if len(self.finished) >= JOBS // 4:
            self.in_the_middle.set()


async def test_a_server_killed_in_the_middle_of_20000_jobs_loses_none(server: TarantoolServer, store: Store) -> None:
    await store.pause(Q, None)
    await store.pause(Q, 0)  # so that there are statistics of it
    before = (await store.stats()).queues[Q]
    stale_ids = [answer.id for answer in await store.enqueue([NewJob("stale")] * 10)]
    stale = await store.take("stale", 10, lease=0.2)
    ledger = Ledger(store)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(ledger.produce())
        for _ in range(4):
            group.create_task(ledger.consume())
        await ledger.in_the_middle.wait()
        await restart(server)  # and all of them go on with the same storage
    # Every call was carried out once, those included whose answer the crash swallowed.
    after = (await store.stats()).queues[Q]
    assert len(ledger.stored) == JOBS
    assert ledger.finished == ledger.stored
    assert (after.total, after.done - before.done, after.expired - before.expired) == (0, JOBS, 0)
    # Leases from before the crash are as dead as any other whose end has come.
    assert await store.wait(["stale"], 10)
    again = await store.take("stale", 10)
    assert [(job.id, job.attempts) for job in again] == [(id, 1) for id in stale_ids]
    assert len(await store.settle([Done(job.lease) for job in stale])) == 10
    assert await store.settle([Done(job.lease) for job in again]) == []


class Cutter:
    """A connection on which an answer can get lost: once armed, it ends when the next answer comes, and drops that."""

    def __init__(self, port: int) -> None:
        self.server_port = port
        self.armed = False
        self.cuts = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._pass(reader, far_writer, False), self._pass(far_reader, writer, True))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        while data := await reader.read(65536):
            if answers and self.armed:
                self.armed = False
                self.cuts += 1
                break
            writer.write(data)
        writer.close()


async def test_a_call_whose_answer_was_lost_is_carried_out_once(server: TarantoolServer, store: Store) -> None:
    async with Cutter(server.port) as cutter, await open_storage(server.url_at(cutter.port)) as far:

        async def lose(call: Awaitable[T]) -> T:
            cutter.armed = True
            return await asyncio.wait_for(call, 10)

        answers = await lose(far.enqueue([NewJob(Q, b"1"), NewJob(Q, b"2", key="k", waiter=b"w"), NewJob(Q, key="k")]))
        assert [(answer.what, answer.waiters) for answer in answers] == [("created", 0), ("created", 1), ("kept", 1)]
        first, second = await lose(far.take(Q, 5))
        assert [(job.id, job.attempts) for job in (first, second)] == [(answer.id, 0) for answer in answers[:2]]
        assert (await store.stats()).queues[Q].taken == 2
        then = [NewJob("next")]
        assert await lose(far.settle([Done(first.lease, then), Bury(second.lease, "x", then)])) == []
        assert (await store.stats()).queues["next"].ready == 2
        assert await lose(far.change([Revive(second.id)])) == 1
        seen = await lose(far.look(ByKey(Q, "k"), waiters_after=0))
        assert (seen.job and seen.job.id, seen.waiters) == (second.id, (b"w",))
        assert await lose(far.change([Remove(second.id, waiters=1)])) == 1
        assert await far.change([Remove(second.id)]) == 0
        (later,) = await far.enqueue([NewJob(Q, delay=900)])
        assert await lose(far.change([StartNow(later.id), Rerank(later.id, 2.0)])) == 2
        assert await far.change([StartNow(later.id)]) == 0
        assert await lose(far.purge("next", "ready")) == 2
        version = await lose(far.write("lost", b"1"))
        assert await lose(far.write("lost", b"2", version=version)) == version + 1
        assert await lose(far.extend([first.lease], 1)) == [Refused(first.lease, "lost")]
        assert cutter.cuts == 11


async def test_queues_that_shared_limits_are_balanced_though_the_answer_was_lost(
    server: TarantoolServer, store: Store
) -> None:
    async with Cutter(server.port) as cutter, await open_storage(server.url_at(cutter.port)) as far:
        for queue in ("one", "two"):
            await far.set_lanes(queue, Lanes(limit=1, shared="lost"))
        await far.enqueue([NewJob(queue, lane="a") for queue in ("one", "two")])
        cutter.armed = True
        await far.set_lanes("one", Lanes(limit=0))  # sent again, it can no longer read what the queue shared before
        assert cutter.cuts == 1
        stats = (await far.stats()).queues
        assert (stats["one"].held, stats["two"].ready) == (1, 1)


async def test_ten_thousand_wait_for_one_job_and_each_gets_a_follow_up(store: Store) -> None:
    names = [b"%d" % n for n in range(10_000)]
    await store.enqueue([NewJob(Q, key="many", on_duplicate="attach", waiter=name) for name in names])
    assert (await store.look(ByKey(Q, "many"), waiters_after=0)).waiters == tuple(names)
    assert (await store.look(Head(Q), waiters_after=9_998)).waiters == (b"9998", b"9999")
    (job,) = await store.take(Q, 1)
    end = Done(job.lease, then=[NewJob("deliver", name) for name in names], waiters=10_000)
    assert await store.settle([end]) == []
    assert [each.data for each in await store.take("deliver", 10_000)] == names


async def test_what_was_acknowledged_is_there_after_a_crash(server: TarantoolServer, store: Store) -> None:
    (answer,) = await store.enqueue([NewJob(Q, b"\x00\xff", rank=-1e300, key="k", waiter=b"\xfe", delay=0)])
    version = await store.write("doc", b"\xff")
    info, stats = (await store.look(ById(answer.id))).job, await store.stats()
    await restart(server)
    assert (await store.look(ById(answer.id))).job == info
    after = await store.stats()
    assert {name: (each.ready, each.done) for name, each in after.queues.items()} == {
        name: (each.ready, each.done) for name, each in stats.queues.items()
    }
    assert await store.write("doc", b"", version=version, ttl=0) == version + 1
    (job,) = await store.take(Q, 1)
    assert (await store.look(ById(job.id), waiters_after=0)).waiters == (b"\xfe",)
    (new,) = await store.enqueue([NewJob("other")])
    assert new.id > answer.id


async def test_a_call_to_a_server_that_is_gone_says_so_and_works_when_it_is_back(
    server: TarantoolServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accoda.storage.tarantool.client.PATIENCE", 0.1)
    server.kill()
    try:
        with pytest.raises(StorageUnavailable, match="cannot be reached"):
            await store.take(Q, 1)
    finally:
        await asyncio.to_thread(server.start)
    assert await store.take(Q, 1) == []


async def test_closing_while_the_server_is_gone_ends_calls_that_wait_for_it(server: TarantoolServer) -> None:
    store = await open_storage(server.url)
    server.kill()
    try:
        waiting = asyncio.create_task(store.take(Q, 1))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises((StorageClosed, StorageUnavailable)):
            await waiting
    finally:
        await asyncio.to_thread(server.start)


async def test_a_forked_child_is_told_to_open_its_own(store: Store) -> None:
    child = os.fork()
    if child == 0:  # no pytest in here: answer by the exit code
        try:
            store.stats().send(None)
        except StorageClosed as error:
            os._exit(0 if "fork" in str(error) else 1)
        except BaseException:
            os._exit(2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    await store.stats()


async def test_a_worker_whose_clock_is_an_hour_off_changes_nothing(
    store: Store, server: TarantoolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = time.time_ns() + 3600 * 10**9
    monkeypatch.setattr("time.time_ns", lambda: wrong)
    monkeypatch.setattr("time.time", lambda: wrong / 1e9)
    async with await open_storage(server.url) as hasty:
        await hasty.enqueue([NewJob(Q, delay=1)])
        assert await hasty.take(Q, 1) == []
        assert await asyncio.wait_for(hasty.wait([Q], 60), 10)
        (job,) = await hasty.take(Q, 1, lease=3600)
        assert abs(job.start_time - wrong / 1e6) > 3_000_000
        assert await store.take(Q, 1) == []
        assert await store.settle([Done(job.lease)]) == []


async def test_a_full_server_refuses_what_does_not_fit_and_goes_on_when_it_has_more_memory() -> None:
    with need(lambda: TarantoolServer(memory=64 * 1024 * 1024)) as server:
        async with await open_storage(server.url) as store:
            stored = 0
            with pytest.raises(StorageFull, match="memtx_memory"):
                while stored < 20_000:
                    await store.enqueue([NewJob(Q, b"x" * 10_000)] * 100)
                    stored += 100
            assert (await store.stats()).queues[Q].ready == stored
            await administer(server.url, "box.cfg{memtx_memory = 256 * 1024 * 1024} return 0")
            done = 0
            while jobs := await store.take(Q, 100):
                assert await store.settle([Done(job.lease) for job in jobs]) == []
                done += len(jobs)
            assert done == stored
