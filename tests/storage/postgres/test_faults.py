"""The server is killed, its connections are cut, its pool is too small: nothing acknowledged is lost."""

import asyncio
import gc
import os
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import asyncpg
import pytest
import pytest_asyncio
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need

from accoda import open_storage
from accoda.errors import StorageClosed, StorageUnavailable
from accoda.model import Done, NewJob, Refused
from accoda.storage.postgres import PostgresStorage

JOBS = 20_000
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tested'"
CUT_ALL = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = $1"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with need(PostgresServer) as running:  # durable, as it comes
        yield running


@pytest_asyncio.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStorage]:
    """Empty, in the schema of the URL as it is."""
    connection = await asyncpg.connect(server.url)
    await connection.execute("DROP SCHEMA IF EXISTS accoda CASCADE")
    await connection.close()
    async with await open_storage(server.url) as opened:
        assert isinstance(opened, PostgresStorage)
        yield opened


class Run:
    """Jobs with a number each go in; each that is settled leaves a follow-up in "done", in the same atomic step."""

    def __init__(self, store: PostgresStorage, jobs: int) -> None:
        self.store = store
        self.acknowledged: set[int] = set()
        self.unsure: set[int] = set()  # the answer was lost: stored or not
        self.settled = 0
        self._jobs = jobs

    async def produce(self) -> None:
        for first in range(0, self._jobs, 100):
            numbers = range(first, first + 100)
            try:
                await self.store.enqueue([NewJob("work", str(n).encode()) for n in numbers])
                self.acknowledged.update(numbers)
            except StorageUnavailable:
                self.unsure.update(numbers)

    async def work(self, produced: asyncio.Task[None]) -> None:
        """As a worker does: a settle whose answer was lost is repeated; no other error is expected, and none caught."""
        while True:
            jobs = await self.store.take("work", 50, lease=2)
            if jobs:
                settled = await self._settle([Done(job.lease, then=[NewJob("done", job.data)]) for job in jobs])
                self.settled += settled
            elif produced.done() and (await self.store.stats()).queues["work"].total == 0:
                return
            else:
                await self.store.wait(["work"], 1)

    async def _settle(self, outcomes: list[Done]) -> int:
        while True:
            try:
                return len(outcomes) - len(await self.store.settle(outcomes))
            except StorageUnavailable:
                continue

    async def finish(self, disturb: asyncio.Task[None] | None = None) -> None:
        produced = asyncio.create_task(self.produce())
        workers = [asyncio.create_task(self.work(produced)) for _ in range(3)]
        await asyncio.gather(produced, *workers, *([disturb] if disturb else []))

    async def nothing_was_lost_or_done_twice(self) -> None:
        done: Counter[int] = Counter()
        while jobs := await self.store.take("done", 5000, lease=600):
            done.update(int(job.data) for job in jobs)
        assert self.acknowledged <= set(done) <= self.acknowledged | self.unsure
        assert set(done.values()) == {1}


class TestKilledServer:
    async def test_in_the_middle_of_many_jobs(self, server: PostgresServer, store: PostgresStorage) -> None:
        await store.enqueue([NewJob("stale")])
        (stale,) = await store.take("stale", 1, lease=0.5)
        run = Run(store, JOBS)

        async def kill() -> None:
            while run.settled < JOBS // 4:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(server.start)

        async with asyncio.timeout(60):
            await run.finish(asyncio.create_task(kill()))
            await run.nothing_was_lost_or_done_twice()
        assert len(run.acknowledged) + len(run.unsure) == JOBS
        # The backends die one after the other, and each connection can lose one call of the producer's. There are as
        # many as callers at once: the producer, three workers, and the one that notifies.
        assert len(run.unsure) <= 500, "only calls that were under way"
        (current,) = await store.take("stale", 1)
        assert current.attempts == 1
        assert await store.settle([Done(stale.lease)]) == [Refused(stale.lease, "lost")]
        assert await store.settle([Done(current.lease)]) == []


class TestCutConnections:
    async def test_in_the_middle_of_a_run(self, server: PostgresServer, store: PostgresStorage) -> None:
        run = Run(store, 5_000)

        async def cut() -> None:
            knife = await asyncpg.connect(server.url)
            for n in range(1, 5):
                while run.settled < n * 900:
                    await asyncio.sleep(0.005)
                assert await knife.fetchval(CUT_ALL, "accoda") > 0
            await knife.close()

        async with asyncio.timeout(60):
            await run.finish(asyncio.create_task(cut()))
            await run.nothing_was_lost_or_done_twice()

    async def test_while_it_waits_a_new_job_is_still_heard_of(
        self, server: PostgresServer, store: PostgresStorage
    ) -> None:
        waiting = asyncio.create_task(store.wait(["q"], 60))
        await store.stats()
        knife = await asyncpg.connect(server.url)
        await knife.fetchval(CUT_ALL, "accoda")
        await knife.close()
        async with asyncio.timeout(10), await open_storage(server.url) as other:
            await other.enqueue([NewJob("q")])
            assert await waiting

    async def test_of_idle_connections_no_call_takes_notice(
        self, server: PostgresServer, store: PostgresStorage
    ) -> None:
        knife = await asyncpg.connect(server.url)
        for _ in range(3):
            await asyncio.gather(*(store.stats() for _ in range(5)))
            await knife.fetchval(CUT_ALL, "accoda")
            await asyncio.sleep(0.05)  # until the loop has read that they are closed
            assert len(await store.enqueue([NewJob("q")])) == 1
        await knife.close()

    async def test_whose_end_was_not_read_yet_are_not_used(self, server: PostgresServer) -> None:
        ended, over = asyncio.Semaphore(0), asyncio.Event()

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """To the server and back; that the server has closed the connection is kept from the client."""
            replies, requests = await asyncio.open_connection("127.0.0.1", server.port)
            sending = asyncio.create_task(pass_on(reader, requests))
            await pass_on(replies, writer)
            ended.release()
            await over.wait()
            sending.cancel()
            requests.close()
            writer.close()

        listening = await asyncio.start_server(relay, "127.0.0.1")
        port = listening.sockets[0].getsockname()[1]
        knife = await asyncpg.connect(server.url)
        async with await open_storage(server.url.replace(f":{server.port}", f":{port}")) as store:
            await store.stats()
            await knife.fetchval(CUT_ALL, "accoda")
            await ended.acquire()
            await asyncio.sleep(0.05)  # until the server's last message has been read
            async with asyncio.timeout(10):
                assert len(await store.enqueue([NewJob("q")])) == 1
            over.set()
        await knife.close()
        listening.close()


class TestSmallPool:
    async def test_calls_wait_for_their_turn(self, server: PostgresServer, store: PostgresStorage) -> None:
        async with await open_storage(f"{server.url}?pool=2") as small:
            answers = await asyncio.gather(*(small.enqueue([NewJob("q")]) for _ in range(100)))
            assert len({answer.id for (answer,) in answers}) == 100

    async def test_a_call_that_is_cancelled_in_line_costs_no_connection(
        self, server: PostgresServer, store: PostgresStorage
    ) -> None:
        async with await open_storage(f"{server.url}?pool=1") as small:
            calls = [asyncio.create_task(small.stats()) for _ in range(20)]
            await asyncio.sleep(0)
            for call in calls[::2]:
                call.cancel()
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(answer, asyncio.CancelledError) for answer in answers) >= 9
            assert len(await small.enqueue([NewJob("q")])) == 1

    async def test_a_server_that_takes_no_more_connections_is_waited_for(self, server: PostgresServer) -> None:
        taken = await asyncio.gather(*(asyncpg.connect(server.url) for _ in range(60)), return_exceptions=True)
        others = [each for each in taken if isinstance(each, asyncpg.Connection)]
        stores = [await open_storage(f"{server.url}?pool=20") for _ in range(2)]
        calls = [asyncio.create_task(store.enqueue([NewJob("q")])) for store in stores for _ in range(40)]
        await asyncio.sleep(0.1)
        await asyncio.gather(*(other.close() for other in others))
        async with asyncio.timeout(20):
            assert len(await asyncio.gather(*calls)) == 80
        for store in stores:
            await store.close()


class TestLeftOpen:
    # The driver may be about to tell the server that a call was cancelled when its loop ends, and says so in the end.
    @pytest.mark.filterwarnings("ignore:.*Connection._cancel:pytest.PytestUnraisableExceptionWarning")
    def test_when_its_loop_ends_its_connections_end_with_it(self, server: PostgresServer) -> None:
        """Nothing can be sent any more then: a close does not fail, and the sockets go with the garbage."""

        async def begin() -> PostgresStorage:
            store = await open_storage(f"{server.url}?application_name=tested")
            assert isinstance(store, PostgresStorage)
            store.waiting = asyncio.create_task(store.wait(["nothing"], 60))  # type: ignore[attr-defined]
            await store.stats()
            return store

        async def close(store: PostgresStorage) -> None:
            with pytest.raises(StorageClosed, match="loop"):
                await store.stats()
            await store.close()
            await store.close()

        async def no_session() -> None:
            watch = await asyncpg.connect(server.url)
            async with asyncio.timeout(10):
                while await watch.fetchval(SESSIONS):
                    await asyncio.sleep(0.005)
            await watch.close()

        with warnings.catch_warnings():
            # A transport whose loop is gone cannot be closed; the collector does it, and says so.
            warnings.filterwarnings("ignore", "unclosed", ResourceWarning)
            store = asyncio.run(begin())
            asyncio.run(close(store))
            del store
            gc.collect()
            asyncio.run(no_session())

    async def test_a_forked_child_can_close_its_copy(self, server: PostgresServer) -> None:
        async with await open_storage(server.url) as store:
            child = os.fork()
            if child == 0:
                code = 1
                with suppress(BaseException):
                    closing = store.close()
                    with pytest.raises(StopIteration):
                        closing.send(None)
                    code = 0
                os._exit(code)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert len(await store.enqueue([NewJob("q")])) == 1, "the parent's connection is untouched"
