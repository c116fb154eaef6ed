"""A job for an idle worker is seen before the server's log is safe, and acknowledged after."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from accoda import open_storage
from accoda.errors import StorageUnavailable
from accoda.model import NewJob
from accoda.storage.postgres import PostgresStorage
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
