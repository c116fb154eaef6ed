"""Lost replies, servers that go away, scripts that the server forgot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from tests.storage.redis.verbs import Q, use_every_verb

from accoda import Bury, Done, NewJob, Retry, open_storage
from accoda.errors import StorageClosed, StorageUnavailable
from accoda.model import Remove
from accoda.storage.protocol import Store


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url) as store:
        yield store


class Cutter:
    """A cable between a client and the server. With `cutting`, the next script gets through, but not its reply."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.cutting = False
        self.cuts = 0
        self._cut = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)

        async def replies() -> None:
            while data := await there.read(65536):
                if self._cut:
                    self._cut, self.cuts = False, self.cuts + 1
                    break
                writer.write(data)
            writer.close()
            back.close()

        async def requests() -> None:
            while data := await reader.read(65536):
                if self.cutting and b"EVALSHA" in data:
                    self.cutting, self._cut = False, True
                back.write(data)
            back.close()

        await asyncio.gather(replies(), requests(), return_exceptions=True)
        for end in (writer, back):
            end.close()
            await asyncio.gather(end.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def cable(server: RedisServer, options: str = "") -> AsyncIterator[tuple[Store, Cutter]]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url) as store:
        await use_every_verb(store)  # so that the server knows all scripts, and the reply that is cut is an answer
    server.ask("FLUSHALL")
    cutter = Cutter(server.port)
    listener = await asyncio.start_server(cutter.carry, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, await open_storage(f"redis://127.0.0.1:{port}/0{options}") as store:
        yield store, cutter
        await store.close()
        await asyncio.sleep(0.01)  # the cable's ends see that it is over


class TestALostReply:
    async def test_of_an_enqueue_makes_no_second_job(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            cutter.cutting = True
            answers = await store.enqueue([NewJob(Q), NewJob(Q, key="k"), NewJob(Q, key="k")])
            assert [answer.what for answer in answers] == ["created", "created", "kept"]
            assert (await store.stats()).queues[Q].ready == 2
            assert cutter.cuts == 1

    async def test_of_an_enqueue_of_jobs_without_keys_makes_no_second_ones(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            cutter.cutting = True
            assert [answer.id for answer in await store.enqueue([NewJob(Q)] * 3)] == [1, 2, 3]
            assert (await store.stats()).queues[Q].ready == 3
            assert cutter.cuts == 1

    async def test_of_a_settle_that_finished_a_batch_is_no_lost_lease(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            await store.enqueue([NewJob(Q)] * 3)
            jobs = await store.take(Q, 3)
            cutter.cutting = True
            assert await store.settle([Done(job.lease) for job in jobs]) == []
            assert (await store.stats()).queues[Q].done == 3
            assert cutter.cuts == 1

    async def test_of_a_take_gives_the_same_batch(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            ids = [answer.id for answer in await store.enqueue([NewJob(Q, key="k", waiter=b"w"), NewJob(Q), NewJob(Q)])]
            cutter.cutting = True
            jobs = await store.take(Q, 2)
            assert [(job.id, job.attempts, job.waiters) for job in jobs] == [(ids[0], 0, 1), (ids[1], 0, 0)]
            assert (await store.stats()).queues[Q].taken == 2
            assert cutter.cuts == 1

    async def test_of_a_take_tells_tries_and_crashes_again(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            await store.enqueue([NewJob(Q), NewJob(Q)])
            await store.settle([Retry(job.lease) for job in await store.take(Q, 1)])
            cutter.cutting = True
            assert [(job.attempts, job.tries) for job in await store.take(Q, 2)] == [(1, 1), (0, 0)]
            assert cutter.cuts == 1

    async def test_of_a_settle_is_no_lost_lease(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            await store.enqueue([NewJob(Q)] * 3)
            one, two, three = await store.take(Q, 3)
            cutter.cutting = True
            then = [NewJob("next")]
            assert await store.settle([Done(one.lease, then), Retry(two.lease), Bury(three.lease, "x", then)]) == []
            stats = (await store.stats()).queues
            assert (stats[Q].done, stats[Q].retried, stats[Q].buried, stats["next"].ready) == (1, 1, 1, 2)
            assert [each.why for each in await store.settle([Done(one.lease)])] == ["lost"]
            assert cutter.cuts == 1

    async def test_of_a_conditional_write_is_no_conflict(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            cutter.cutting = True
            assert await store.write("doc", b"1", version=0) == 1
            assert await store.write("doc", b"2", version=1) == 2
            assert cutter.cuts == 1

    async def test_of_a_removal_is_counted_once(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            ids = [answer.id for answer in await store.enqueue([NewJob(Q)] * 3)]
            cutter.cutting = True
            assert await store.change([Remove(id) for id in ids]) == 3
            assert cutter.cuts == 1

    async def test_of_a_change_tells_what_was_changed(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            ids = [answer.id for answer in await store.enqueue([NewJob(Q)] * 2)]
            cutter.cutting = True
            assert await store.change([Remove(ids[0], 0, Q)]) == 1
            assert await store.change([Remove(ids[0], 0, Q)]) == 0
            assert cutter.cuts == 1
            cutter.cutting = True
            changes = [Remove(id, 0, Q) for id in (7777, *ids, ids[1])]
            assert await asyncio.gather(*(store.change([change]) for change in changes)) == [0, 0, 1, 0]
            assert cutter.cuts == 2

    async def test_is_remembered_not_much_longer_than_until_the_reply_is_seen(
        self, store: Store, server: RedisServer
    ) -> None:
        for _ in range(200):
            await store.enqueue([NewJob(Q)])
        (calls,) = server.ask("KEYS", "accoda:calls:*")
        assert 1 <= server.ask("HLEN", calls) <= 17
        assert 0 < server.ask("TTL", calls) <= 3600


class TestAServerThatIsGone:
    async def test_is_an_error_after_the_timeout(self) -> None:
        with need(RedisServer) as gone:
            async with await open_storage(f"{gone.url}?timeout=0.3") as store:
                gone.kill()
                with pytest.raises(StorageUnavailable, match=r"0\.3 s"):
                    await store.enqueue([NewJob(Q)])
                with pytest.raises(StorageUnavailable):
                    await store.wait([Q], 5)

    async def test_is_waited_for_by_sleepers(self) -> None:
        with need(RedisServer) as server:
            async with await open_storage(server.url) as store, await open_storage(server.url) as other:
                waiting = asyncio.create_task(store.wait([Q], 20))
                for _ in range(5):
                    await store.stats()
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await other.enqueue([NewJob(Q)])
                assert await waiting

    async def test_cannot_be_opened(self) -> None:
        with pytest.raises(StorageUnavailable):
            await open_storage("redis://127.0.0.1:1/0?timeout=0.2")


async def test_scripts_are_sent_again_when_the_server_forgot_them(store: Store, server: RedisServer) -> None:
    for _ in range(2):
        server.ask("SCRIPT", "FLUSH")
        await asyncio.gather(*(store.enqueue([NewJob(Q)]) for _ in range(5)))
        jobs = await store.take(Q, 5)
        assert await store.settle([Done(job.lease) for job in jobs]) == []
    assert (await store.stats()).queues[Q].done == 10


async def test_closing_while_the_server_is_away_ends_all_calls() -> None:
    with need(RedisServer) as gone:
        store = await open_storage(gone.url)
        await store.enqueue([NewJob(Q)])
        gone.kill()
        calls = [asyncio.create_task(store.enqueue([NewJob(Q)])) for _ in range(3)]
        calls.append(asyncio.create_task(store.take(Q, 1)))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            await store.close()
            assert {type(each) for each in await asyncio.gather(*calls, return_exceptions=True)} == {StorageClosed}
