"""Redis servers that die in the middle of a run, on the real programs. Workers and producers are never restarted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from proof.servers.process import wait_until
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer, SentinelSet

from accoda import Done, NewJob, QueueStats, open_storage
from accoda.storage.protocol import Store
from accoda.storage.redis.keys import slot_of

Q = "work"


class Ledger:
    """A producer and workers that note what the storage has acknowledged to them."""

    def __init__(self, total: int, batch: int = 50, lease: float = 4.0) -> None:
        self.total = total
        self.batch = batch
        self.lease = lease
        self.enqueued: list[int] = []
        self.settled: Counter[int] = Counter()
        self.refused = 0
        self.stats = QueueStats()
        self._progress = asyncio.Event()

    async def produce(self, store: Store) -> None:
        while len(self.enqueued) < self.total:
            # Never far ahead of the workers: when a third is settled, there is still something to enqueue.
            while len(self.enqueued) - len(self.settled) > self.total // 2:
                await asyncio.sleep(0.002)
            answers = await store.enqueue([NewJob(Q, b"x")] * 100)
            self.enqueued += [answer.id for answer in answers]
            self._progress.set()

    async def work(self, store: Store) -> None:
        while len(self.enqueued) < self.total or (await store.stats()).queues[Q].total:
            await store.wait([Q], 0.5)
            jobs = await store.take(Q, self.batch, lease=self.lease)
            refused = {each.lease for each in await store.settle([Done(job.lease) for job in jobs])}
            self.settled.update(job.id for job in jobs if job.lease not in refused)
            self.refused += len(refused)
            self._progress.set()

    async def reach(self, settled: int) -> None:
        while len(self.settled) < settled:
            self._progress.clear()
            await self._progress.wait()

    async def run(self, url: str, strike: Callable[[], None], limit: float = 60.0) -> None:
        """Strike when a third is done; then the run must still come to its end."""
        async with asyncio.timeout(limit), await open_storage(url) as one, await open_storage(url) as two:
            tasks = [asyncio.create_task(self.produce(one))]
            tasks += [asyncio.create_task(self.work(store)) for store in (one, two, two)]
            await self.reach(self.total // 3)
            assert len(self.enqueued) < self.total, "too late: the producer is done"
            await asyncio.to_thread(strike)
            await asyncio.gather(*tasks)
            self.stats = (await one.stats()).queues[Q]

    def nothing_was_lost(self) -> None:
        assert len(self.enqueued) == len(set(self.enqueued)) == self.total
        assert set(self.enqueued) <= set(self.settled), "an acknowledged job was lost"
        assert set(self.settled.values()) == {1}, "a job was settled twice"
        assert (self.stats.total, self.stats.done) == (0, self.total)


def kill_and_restart(server: RedisServer) -> Callable[[], None]:
    def strike() -> None:
        server.kill()
        server.start()

    return strike


async def test_a_killed_server_with_a_durable_log_loses_nothing_that_was_acknowledged() -> None:
    with need(lambda: RedisServer("always")) as server:
        ledger = Ledger(20_000, batch=100)
        await ledger.run(server.url, kill_and_restart(server))
        ledger.nothing_was_lost()


async def test_a_killed_server_that_syncs_each_second_keeps_a_beginning_of_what_it_acknowledged() -> None:
    with need(lambda: RedisServer("everysec")) as server:
        ids: list[int] = []

        async def produce(store: Store) -> None:
            while True:
                ids.extend(answer.id for answer in await store.enqueue([NewJob(Q)] * 20))

        async with await open_storage(server.url) as store:
            producing = asyncio.create_task(produce(store))
            while len(ids) < 4_000:
                await asyncio.sleep(0)
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)
            await asyncio.to_thread(kill_and_restart(server))
            left = {job.id for job in await store.browse(Q, "ready", limit=1_000_000)}
        lost = [id for id in ids if id not in left]
        assert lost == ids[len(ids) - len(lost) :], "what is lost is the end, never something in between"


async def test_a_sentinel_fail_over_with_wait_replicas_loses_nothing() -> None:
    with need(lambda: SentinelSet(replicas=2)) as servers:
        ledger = Ledger(6_000)
        await ledger.run(f"{servers.url}&wait_replicas=1", servers.master.kill)
        ledger.nothing_was_lost()


async def test_the_loss_of_a_cluster_master_does_not_stop_a_run() -> None:
    with need(ClusterSet) as servers:
        # What the replica had not yet heard of is lost without wait_replicas, but the run comes to its end.
        await Ledger(6_000).run(servers.url, lambda: lose_master(servers, restart=False))


async def test_the_loss_of_a_cluster_master_with_wait_replicas_loses_nothing() -> None:
    with need(ClusterSet) as servers:
        # The replica that takes over has none itself, so that calls wait until the lost server is back.
        url = f"{servers.url}?wait_replicas=1"
        ledger = Ledger(6_000)
        await ledger.run(url, lambda: lose_master(servers, restart=True))
        ledger.nothing_was_lost()


def lose_master(servers: ClusterSet, restart: bool) -> None:
    """Kill the master of the queue; with `restart`, it comes back as a replica once the other one has taken over."""
    slot = slot_of(Q)
    lost = servers.owner(slot)
    lost.kill()
    witness = next(server for server in servers.all if server is not lost)

    def has_new_owner() -> bool:
        for low, high, (_, port, *_), *_ in witness.ask("CLUSTER", "SLOTS"):
            if low <= slot <= high:
                return bool(port != lost.port)
        return False

    if restart:
        wait_until(has_new_owner, lambda: "no replica took over")
        lost.start()
