"""The answer of a take is lost, and its client sends it again: what was leased the first time is given again, or comes
back when its lease ends, but no lease that has ended is handed out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from proof.chaos.faults import Target
from proof.proxy import REPLIES_VANISH, NetworkConditions, Proxy
from proof.servers.postgres import PostgresServer
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

from accoda import ById, Done, Job, NewJob, open_storage
from accoda.storage.protocol import Store

LONG, SHORT = 3600.0, 0.4  # leases: one that ends in no test, and one that a test can wait for
HANG = 30.0  # seconds; nothing here may take so long, unless a call hangs
COUNT = 3


class TwoClients:
    """A client whose answers can get lost (`far`), and one that sees what the server did (`near`)."""

    def __init__(self, proxy: Proxy, far: Store, near: Store, queue: str) -> None:
        self.proxy = proxy
        self.far = far
        self.near = near
        self.queue = queue

    async def enqueue(self, count: int) -> list[int]:
        return [each.id for each in await self.near.enqueue([NewJob(self.queue, b"%d" % n) for n in range(count)])]

    async def lose_the_answer(self, lease: float) -> asyncio.Task[list[Job]]:
        """A take that the server has carried out, and whose answer is gone. The taker does not know it yet."""
        self.proxy.set(REPLIES_VANISH)
        taking = asyncio.create_task(self.far.take(self.queue, COUNT, lease=lease))
        while True:
            stats = (await self.near.stats()).queues[self.queue]
            if stats.taken + stats.expired >= COUNT:
                return taking
            await asyncio.sleep(0.002)

    def recover(self) -> None:
        """The taker learns that its connection is broken, and can open another: it sends its take again."""
        self.proxy.set(NetworkConditions(cut=True))
        self.proxy.set(NetworkConditions())


@pytest_asyncio.fixture
async def clients(target: Target, queue: str) -> AsyncIterator[TwoClients]:
    proxy, server = target.proxy, target.server
    assert proxy is not None
    assert isinstance(server, RedisServer | PostgresServer | TarantoolServer)
    async with (
        asyncio.timeout(HANG),
        await open_storage(target.url) as far,
        await open_storage(server.url) as near,
    ):
        await far.take("nothing", 1)  # Redis then knows the script, and does not only ask for it
        try:
            yield TwoClients(proxy, far, near, queue)
        finally:
            proxy.set(NetworkConditions())


def tokens(jobs: list[Job]) -> list[tuple[int, int]]:
    return [(job.id, job.attempts) for job in jobs]


class TestWhereATakeIsKnownAgain:
    @pytest.fixture(params=["redis", "tarantool"])
    def target(self, request: pytest.FixtureRequest, targets: Callable[[str], Target]) -> Target:
        return targets(request.param)

    async def test_within_the_lease_it_gives_the_very_jobs(self, clients: TwoClients) -> None:
        ids = await clients.enqueue(COUNT + 2)
        taking = await clients.lose_the_answer(LONG)
        clients.recover()
        jobs = await taking
        assert tokens(jobs) == [(id, 0) for id in ids[:COUNT]]
        assert (await clients.near.stats()).queues[clients.queue].taken == COUNT
        assert await clients.far.settle([Done(job.lease) for job in jobs]) == []

    @pytest.mark.parametrize("target", ["redis", "tarantool"], indirect=True)
    async def test_after_the_lease_it_gives_no_lease_that_has_ended(self, clients: TwoClients) -> None:
        """No other client calls after the lease has ended."""
        ids = await clients.enqueue(COUNT)
        taking = await clients.lose_the_answer(SHORT)
        assert await clients.near.wait([clients.queue], HANG)  # nothing waits there: it is the end of the lease
        clients.recover()
        jobs = await taking  # none, or those that have come back
        again = await clients.near.take(clients.queue, COUNT, lease=LONG)
        assert tokens(jobs + again) == [(id, 1) for id in ids]
        assert await clients.near.settle([Done(job.lease) for job in again]) == []

    async def test_after_the_lease_it_gives_nothing_that_another_has_taken_since(self, clients: TwoClients) -> None:
        ids = await clients.enqueue(COUNT)
        taking = await clients.lose_the_answer(SHORT)
        assert await clients.near.wait([clients.queue], HANG)
        others = await clients.near.take(clients.queue, COUNT, lease=LONG)
        assert tokens(others) == [(id, 1) for id in ids]
        clients.recover()
        assert await taking == []
        assert await clients.near.settle([Done(job.lease) for job in others]) == []


class TestWhereATakeIsSentAsANewOne:
    """PostgreSQL: what the lost answer named comes back when its lease ends, be the take as short as it may."""

    @pytest.fixture
    def target(self, targets: Callable[[str], Target]) -> Target:
        return targets("postgres")

    async def test_it_gives_the_next_jobs_and_those_of_the_lost_answer_stay_leased(self, clients: TwoClients) -> None:
        ids = await clients.enqueue(COUNT + 2)
        taking = await clients.lose_the_answer(LONG)
        clients.recover()
        assert tokens(await taking) == [(id, 0) for id in ids[COUNT:]]
        found = [(await clients.near.look(ById(id))).job for id in ids]
        assert [info is not None and (info.state, info.attempts) for info in found] == [("taken", 0)] * len(ids)
