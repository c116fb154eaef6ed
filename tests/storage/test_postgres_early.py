"""What an idle worker gets before the server has its log on the disk: the news of a job and the job; and what waits."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
import pytest_asyncio

from accoda import open_storage
from accoda.errors import StorageUnavailable
from accoda.model import Done, Job, NewJob, Outcome, Refused
from accoda.storage.holding import held_here
from accoda.storage.postgres import PostgresStorage, early
from accoda.storage.postgres.errors import translate
from accoda.testing.servers.postgres import PostgresServer
from accoda.testing.servers.pytest import need

QUIET = 0.03  # seconds after which a process has told nothing for long enough to tell it by the enqueue itself
WAITS = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    # Nobody else writes the log to the disk: only a commit that waits for it does.
    with need(lambda: PostgresServer(settings=["wal_writer_delay=10s", "wal_writer_flush_after=0"])) as running:
        yield running


@pytest_asyncio.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStorage]:
    connection = await asyncpg.connect(server.url)
    await connection.execute("DROP SCHEMA IF EXISTS accoda CASCADE")
    await connection.close()
    async with await open_storage(server.url) as opened:
        assert isinstance(opened, PostgresStorage)
        await asyncio.sleep(QUIET)
        yield opened


class SlowReplica:
    """Commits wait for a replica that never confirms; it stands for a slow disk."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    async def __aenter__(self) -> "SlowReplica":
        self.connection = await asyncpg.connect(self._server.url)
        await self._wait_for("nobody")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._wait_for("")
        await self.connection.close()

    async def waiting(self) -> int:
        """The process of the server that waits for it, once there is one."""
        async with asyncio.timeout(10):
            while not (found := await self.connection.fetchval(WAITS)):
                await asyncio.sleep(0.01)
        return int(found)

    async def _wait_for(self, name: str) -> None:
        await self.connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        await self.connection.execute("SELECT pg_reload_conf()")
        async with asyncio.timeout(10):
            while await self.connection.fetchval("SHOW synchronous_standby_names") != name:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # others read it a moment later


async def test_it_is_seen_first_and_acknowledged_after(server: PostgresServer, store: PostgresStorage) -> None:
    async with await open_storage(server.url) as other:
        await other.stats()
        async with SlowReplica(server) as replica:
            waiting = asyncio.create_task(other.wait(["q"], 60))
            await asyncio.sleep(0.1)
            enqueue = asyncio.create_task(store.enqueue([NewJob("q", b"x")]))
            async with asyncio.timeout(10):
                assert await waiting, "whoever waits is told"
            (job,) = await other.browse("q", "ready")
            assert job.data == b"x"
            await replica.waiting()
            assert not enqueue.done()
        async with asyncio.timeout(10):
            ((id, what, _),) = [(each.id, each.what, each.waiters) for each in await enqueue]
        assert (id, what) == (job.id, "created")


async def test_what_was_acknowledged_survives_a_killed_server(server: PostgresServer, store: PostgresStorage) -> None:
    for number in range(5):
        await asyncio.sleep(QUIET)
        (stored,) = await store.enqueue([NewJob("q", str(number).encode())])
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        found = await store.find(stored.id)
        assert found is not None
        assert found.data == str(number).encode()
    assert (await store.stats()).queues["q"].ready == 5


async def test_who_is_cut_off_in_between_is_told_that_it_may_be_there(
    server: PostgresServer, store: PostgresStorage
) -> None:
    async with SlowReplica(server) as replica:
        enqueue = asyncio.create_task(store.enqueue([NewJob("q")]))
        await replica.connection.fetchval("SELECT pg_terminate_backend($1)", await replica.waiting())
        with pytest.raises(StorageUnavailable) as problem:
            await enqueue
        assert problem.value.unsure
    assert len(await store.browse("q", "ready")) == 1


def test_a_call_that_the_server_ended_may_have_been_carried_out_where_it_has_two_transactions() -> None:
    ended = asyncpg.QueryCanceledError("canceling statement due to statement timeout")
    assert getattr(translate(ended, unsure=True, in_two=True), "unsure", None) is True
    assert getattr(translate(ended, unsure=True), "unsure", None) is False


async def take_woken(store: PostgresStorage, other: PostgresStorage, count: int = 1) -> list[Job]:
    """As a worker that found nothing, slept, and was woken."""
    await asyncio.gather(store.stats(), store.stats(), store.stats())  # some connections
    with held_here():
        assert await store.take("q", 10) == []
        await other.enqueue([NewJob("q", b"x")] * count)
        return await store.take("q", 10)


async def insist(store: PostgresStorage, outcomes: list[Outcome]) -> list[Refused]:
    """As a worker does it."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.settle(outcomes)
            except StorageUnavailable:
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def other(server: PostgresServer, store: PostgresStorage) -> AsyncIterator[PostgresStorage]:
    async with await open_storage(server.url) as opened:
        assert isinstance(opened, PostgresStorage)
        yield opened


class TestTheTakeOfAWokenWorker:
    async def test_is_answered_first_and_what_uses_its_leases_after(
        self, server: PostgresServer, store: PostgresStorage, other: PostgresStorage
    ) -> None:
        await asyncio.gather(store.stats(), store.stats(), store.stats())
        with held_here():
            assert await store.take("q", 10) == []
        await other.enqueue([NewJob("q"), NewJob("q")])
        async with SlowReplica(server) as replica:
            async with asyncio.timeout(10):
                with held_here():
                    first, second = await store.take("q", 10)
            extend = asyncio.create_task(store.extend([first.lease, second.lease], 60))
            settle = asyncio.create_task(store.settle([Done(first.lease)]))
            await replica.waiting()
            await asyncio.sleep(0.1)
            assert not extend.done()
            assert not settle.done()
        async with asyncio.timeout(10):
            assert await extend == []
            assert await settle == []
            assert await store.settle([Done(second.lease)]) == []

    async def test_is_not_for_those_whose_leases_leave_the_process(
        self, server: PostgresServer, store: PostgresStorage, other: PostgresStorage
    ) -> None:
        await asyncio.gather(store.stats(), store.stats(), store.stats())
        assert await store.take("q", 10) == []
        await other.enqueue([NewJob("q")])
        async with SlowReplica(server) as replica:
            take = asyncio.create_task(store.take("q", 10))
            await replica.waiting()
            await asyncio.sleep(0.1)
            assert not take.done()
        assert len(await take) == 1

    @pytest.mark.parametrize("count", [1, 3])
    async def test_a_settle_of_all_its_jobs_needs_no_other_commit(
        self, server: PostgresServer, store: PostgresStorage, other: PostgresStorage, count: int
    ) -> None:
        jobs = await take_woken(store, other, count)
        assert len(jobs) == count
        assert store._calls.early.holds([job.lease for job in jobs])
        assert await store.settle([Done(job.lease) for job in reversed(jobs)]) == []
        assert not store._calls.early
        assert (await store.stats()).queues["q"].taken == 0

    async def test_its_connection_goes_back_to_the_others(
        self, server: PostgresServer, store: PostgresStorage, other: PostgresStorage
    ) -> None:
        for number in range(30):
            jobs = await take_woken(store, other, 1 + number % 3)
            await store.settle([Done(job.lease) for job in jobs[: 1 + number % 2]])
            if number % 5 == 0:
                await store.settle([Done(job.lease) for job in jobs])
        await asyncio.sleep(3 * early.SOON)
        assert not store._calls.early
        assert store._client.pool.at_hand == len(store._client._connector._alive)

    async def test_lasts_after_a_moment_though_nobody_uses_it(
        self, server: PostgresServer, store: PostgresStorage, other: PostgresStorage
    ) -> None:
        (job,) = await take_woken(store, other)
        async with asyncio.timeout(10):
            while store._calls.early:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        assert await other.take("q", 1) == []
        assert await insist(store, [Done(job.lease)]) == []

    async def test_that_the_server_forgot_in_a_crash_settles_nothing_against_the_next_holder(
        self,
        server: PostgresServer,
        store: PostgresStorage,
        other: PostgresStorage,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(early, "SOON", 3600)
        (job,) = await take_woken(store, other)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        (again,) = await other.take("q", 1)
        assert again.lease == job.lease, "this test needs a server that has forgotten"
        assert await insist(store, [Done(job.lease)]) == [Refused(job.lease, "lost")]
        assert await store.extend([job.lease], 60) == [Refused(job.lease, "lost")]
        assert await insist(store, [Done(job.lease)]) == [Refused(job.lease, "lost")]
        found = await other.find(job.id)
        assert found is not None
        assert found.state == "taken"
        assert await other.settle([Done(again.lease)]) == []

    async def test_goes_back_if_its_caller_has_gone(
        self, server: PostgresServer, store: PostgresStorage, other: PostgresStorage
    ) -> None:
        await asyncio.gather(store.stats(), store.stats(), store.stats())
        with held_here():
            assert await store.take("q", 10) == []
            await other.enqueue([NewJob("q")])
            take = asyncio.create_task(store.take("q", 10))
        await asyncio.sleep(0)
        take.cancel()
        with pytest.raises(asyncio.CancelledError):
            await take
        assert len(await other.take("q", 10)) == 1
        assert not store._calls.early

    async def test_is_made_to_last_by_a_close(
        self, server: PostgresServer, store: PostgresStorage, other: PostgresStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(early, "SOON", 3600)
        (job,) = await take_woken(store, other)
        await store.close()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        assert await other.take("q", 1) == []
        assert await other.settle([Done(job.lease)]) == []
