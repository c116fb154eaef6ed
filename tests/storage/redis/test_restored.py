"""A Redis that comes back older gives ids and attempts again. No lease from before fits the jobs of afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from msgspec.structs import replace
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer

from accoda import App, Bury, Done, NewJob, Outcome, Retry, Worker, WorkerOptions, open_storage
from accoda.model import ById, Job, Lease, Refused
from accoda.settings import Settings
from accoda.storage.protocol import Store
from accoda.storage.redis import shards
from accoda.storage.redis.storage import RedisStorage

Q = "q"
COUNT = 12


def next_millisecond(server: RedisServer) -> None:
    """A token could come again only within the millisecond of the old take."""
    before = server.ask("TIME")
    while (now := server.ask("TIME"))[0] == before[0] and int(now[1]) // 1000 == int(before[1]) // 1000:
        pass


def killed(server: RedisServer) -> None:
    server.kill()
    server.start()


def terminated(server: RedisServer) -> None:
    server.stop()
    server.start()


def flushed(server: RedisServer) -> None:
    server.ask("FLUSHALL")
    next_millisecond(server)


RETURNS: dict[str, Callable[[RedisServer], None]] = {
    "killed, nothing saved": killed,
    "terminated, nothing saved": terminated,
    "flushed": flushed,
    "restored from a snapshot": killed,
}


class ReturningServer(RedisServer):
    """It comes back in one of the ways of RETURNS."""

    way = ""

    async def come_back(self) -> None:
        await asyncio.to_thread(RETURNS[self.way], self)


@pytest.fixture(params=RETURNS)
def server(request: pytest.FixtureRequest) -> Iterator[ReturningServer]:
    with need(ReturningServer) as server:
        server.way = request.param
        yield server


async def snapshot(server: ReturningServer, store: Store) -> None:
    """Where the server is to come back from a snapshot, it has one of a store that was in use."""
    if server.way == "restored from a snapshot":
        await store.enqueue([NewJob(Q, b"earlier")] * 3)
        assert await store.settle([Done(job.lease) for job in await store.take(Q, 3)]) == []
        assert server.ask("SAVE") == "OK"


async def add_and_take(store: Store, data: bytes) -> list[Job]:
    await store.enqueue([NewJob(Q, data, keep_for=60)] * COUNT)
    jobs = await store.take(Q, COUNT)
    assert [job.data for job in jobs] == [data] * COUNT
    return jobs


def outcomes_of(lease: Lease) -> list[Outcome]:
    then = [NewJob("next")]
    return [Done(lease), Done(lease, result=b"old", then=then), Retry(lease), Bury(lease, "old", then)]


async def test_every_old_lease_is_refused_and_every_new_one_accepted(server: ReturningServer) -> None:
    async with await open_storage(server.url) as store:
        await snapshot(server, store)
        old = await add_and_take(store, b"old")
        assert await store.extend([job.lease for job in old[::2]], 90) == [], "some are in a batch of their own now"
        await server.come_back()
        new = await add_and_take(store, b"new")
        assert [replace(job.lease, taken_at=0) for job in new] == [replace(job.lease, taken_at=0) for job in old]
        before = await store.browse(Q, "taken")
        for job in old:
            outcomes = outcomes_of(job.lease)
            assert await store.settle(outcomes) == [Refused(job.lease, "lost")] * len(outcomes)
        assert await store.extend([job.lease for job in old], 1) == [Refused(job.lease, "lost") for job in old]
        assert (await store.browse(Q, "taken"), await store.browse("next", "ready")) == (before, [])
        assert await store.extend([job.lease for job in new], 60) == []
        assert await store.settle([Done(job.lease, result=b"new") for job in new]) == []
        assert [(job.data, job.result) for job in await store.browse(Q, "done")] == [(b"new", b"new")] * COUNT


async def test_outcomes_of_both_in_one_call_are_told_apart(server: ReturningServer) -> None:
    """As a worker sends them that holds both."""
    async with await open_storage(server.url) as store:
        await snapshot(server, store)
        old = await add_and_take(store, b"old")
        await server.come_back()
        new = await add_and_take(store, b"new")
        mixed = [Done(lease) for pair in zip(old, new, strict=True) for lease in (pair[0].lease, pair[1].lease)]
        assert await store.settle(mixed) == [Refused(job.lease, "lost") for job in old]
        stats = (await store.stats()).queues[Q]
        assert (stats.taken, len(await store.browse(Q, "done"))) == (0, COUNT)


async def test_a_take_that_was_cancelled_before_puts_nothing_back_of_another_taker(server: ReturningServer) -> None:
    async with await open_storage(server.url) as store:
        assert isinstance(store, RedisStorage)
        await snapshot(server, store)
        old = await add_and_take(store, b"old")
        await server.come_back()
        new = await add_and_take(store, b"new")
        for jobs, taken in ((old, COUNT), (new[:1], COUNT - 1)):
            store._put_back((store._keys.single, Q, 60.0, ""), jobs)
            await asyncio.wait(store._releasing)
            assert (await store.stats()).queues[Q].taken == taken
        assert await store.settle([Done(job.lease) for job in new[1:]]) == []


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await true():
            await asyncio.sleep(0.005)


async def test_a_busy_worker_runs_every_job_that_was_acknowledged_after_the_return(server: ReturningServer) -> None:
    """Its handlers end when other jobs have their ids and another worker, which dies, holds those."""
    began: set[str] = set()
    ran: list[str] = []
    end = asyncio.Event()
    async with App(server.url) as app, await open_storage(server.url) as other:
        await snapshot(server, app.storage)

        @app.handler(Q, batch=COUNT)
        async def work(name: str) -> None:
            began.add(name)
            await end.wait()
            ran.append(name)

        async def all_began() -> bool:
            return len(began) == COUNT

        async def old_ones_ended() -> bool:
            return worker.jobs_run >= COUNT

        async def all_ended() -> bool:
            return (await other.stats()).queues[Q].total == 0

        await app.enqueue_many(Q, [f"old {n}" for n in range(COUNT)])
        settings = Settings.load(environ={}, overrides={"max_processors": 1})
        worker = Worker(app, WorkerOptions(managed=False, system_jobs=False, settings=settings))
        running = asyncio.create_task(worker.run())
        await until(all_began)
        await server.come_back()
        acknowledged = [f"new {n}" for n in range(COUNT)]
        await app.enqueue_many(Q, acknowledged)
        held = await other.take(Q, COUNT)
        assert len(held) == COUNT
        end.set()
        await until(old_ones_ended)
        assert await other.extend([job.lease for job in held], 0.05) == [], "they are still held, and end now"
        await until(all_ended)
        worker.shutdown()
        await running
        assert sorted(set(ran) & set(acknowledged)) == sorted(acknowledged)


async def test_traffic_through_a_return_loses_nothing_that_was_acknowledged_afterwards() -> None:
    """Takers and a producer that never stop; some jobs are in hand for as long as the server is away."""
    ran: set[bytes] = set()
    stop = asyncio.Event()

    async def take(store: Store) -> None:
        while not stop.is_set() or (await store.stats()).queues[Q].total:
            jobs = await store.take(Q, 20, lease=1)
            await asyncio.sleep(0.01)
            lost = {each.lease for each in await store.settle([Done(job.lease) for job in jobs])}
            ran.update(job.data for job in jobs if job.lease not in lost)

    with need(RedisServer) as server:
        async with asyncio.timeout(60), await open_storage(server.url) as one, await open_storage(server.url) as two:
            takers = [asyncio.create_task(take(store)) for store in (one, two) for _ in range(3)]
            acknowledged: list[bytes] = []
            for life in range(3):
                for number in range(40):
                    data = [f"{life}/{number}/{n}".encode() for n in range(10)]
                    await two.enqueue([NewJob(Q, each) for each in data])
                    acknowledged += data
                    if number == 20 and life < 2:
                        await asyncio.to_thread(killed, server)
                        acknowledged.clear()
            stop.set()
            await asyncio.gather(*takers)
            assert set(acknowledged) <= ran


class TestCluster:
    async def test_old_leases_are_refused_and_nothing_that_follows_them_leaves(self, servers: ClusterSet) -> None:
        async with await open_storage(servers.url) as store:
            old = await add_and_take(store, b"old")
        for master in servers.masters:
            flushed(master)
        async with await open_storage(servers.url) as store:
            new = await add_and_take(store, b"new")
            assert [job.id for job in new] == [job.id for job in old]
            outcomes = [Done(job.lease, then=[NewJob("other"), NewJob(Q)]) for job in old]
            assert await store.settle(outcomes) == [Refused(job.lease, "lost") for job in old]
            assert await store.extend([job.lease for job in old], 1) == [Refused(job.lease, "lost") for job in old]
            assert await store.settle([Done(job.lease, then=[NewJob("other")]) for job in new]) == []
            assert {name: each.ready for name, each in (await store.stats()).queues.items()} == {Q: 0, "other": 12}

    async def test_a_client_that_lived_through_it_registers_its_shards_again(
        self, servers: ClusterSet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shards, "REGISTER_EVERY", 0.0)
        async with await open_storage(servers.url) as store:
            (old,) = await store.enqueue([NewJob("lasting")])
            for master in servers.masters:
                flushed(master)
            (new,) = await store.enqueue([NewJob("lasting", b"new")])
            assert new.id > old.id, "this client has seen the old id"
        async with await open_storage(servers.url) as other:
            found = (await other.look(ById(new.id))).job
            assert found is not None and found.data == b"new"
            assert (await other.stats()).queues["lasting"].ready == 1
