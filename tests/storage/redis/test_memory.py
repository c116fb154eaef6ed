"""Memory of a Redis server: nothing is left behind, a full one loses nothing and is worked off, no call is long."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest
from proof.servers.pytest import need
from proof.servers.redis import RedisServer

from accoda import Bury, Done, ManualClock, NewJob, Retry, open_storage
from accoda.errors import StorageFull
from accoda.model import Cancel, Remove, Revive
from accoda.storage.protocol import DUE_AT_ONCE, Store
from accoda.storage.redis.scripts import all_scripts, script

Q = "q"
BASE = "accoda:q"


def test_the_scripts_move_as_many_at_once_as_the_protocol_says() -> None:
    used = [name for name in all_scripts() if "DUE_AT_ONCE = " in script(name).source.decode()]
    assert "take" in used and "stats" in used
    for name in used:
        assert f"local DUE_AT_ONCE = {DUE_AT_ONCE}\n" in re.sub(" --.*", "", script(name).source.decode())


def used_memory(server: RedisServer) -> int:
    server.ask("MEMORY", "PURGE")
    found = re.search(r"used_memory_dataset:(\d+)", server.ask("INFO", "memory"))
    assert found is not None
    return int(found[1])


async def cycle(store: Store, clock: ManualClock, n: int) -> None:
    """Everything that can happen to a job and a document, and its end."""
    await store.enqueue([NewJob(Q, b"x" * 40, rank=n % 3) for _ in range(4)])
    await store.enqueue(
        [NewJob(Q, key=f"k{n}", on_duplicate=mode, waiter=b"w") for mode in ("keep", "attach", "replace")]
    )
    await store.enqueue([NewJob(Q, delay=1), NewJob(Q, keep_for=2, key=f"kept{n}")])
    await store.take(Q, 3, lease=1)
    clock.advance(1)
    jobs = await store.take(Q, 10)
    assert len(jobs) == 7
    await store.extend([job.lease for job in jobs[:2]], 30)
    await store.settle(
        [Retry(jobs[0].lease, delay=1), Bury(jobs[1].lease, "x"), *(Done(job.lease) for job in jobs[2:])]
    )
    await store.write(f"doc{n}", b"y" * 200, ttl=1)
    clock.advance(2)
    if n % 3 == 0:
        assert await store.change([Revive(jobs[1].id)]) == 1
    elif n % 3 == 1:
        assert await store.purge(Q, "dead", before=clock.now()) == 1
    else:
        assert await store.change([Remove(jobs[1].id)]) == 1
    await store.settle([Done(job.lease) for job in await store.take(Q, 10)])


async def test_cycles_of_everything_leave_nothing_behind(store: Store, server: RedisServer, clock: ManualClock) -> None:
    async def settle_down() -> tuple[set[str], int]:
        clock.advance(3 * 24 * 3600)
        for _ in range(20):
            await store.stats()
            await store.write("last", b"")
        return set(server.ask("KEYS", "*")), used_memory(server)

    for n in range(50):
        await cycle(store, clock, n)
    keys, before = await settle_down()
    for n in range(50, 550):
        await cycle(store, clock, n)
    keys_then, after = await settle_down()
    stats = (await store.stats()).queues[Q]
    assert stats.total == 0
    assert keys_then == keys
    assert {key for key in keys if key.startswith(f"{BASE}:")} == {f"{BASE}:meta"}
    assert after - before < 50_000, "some hundred bytes for each cycle would be 100,000 and more"


async def test_kept_results_go_while_a_worker_only_waits(store: Store, server: RedisServer, clock: ManualClock) -> None:
    await store.enqueue([NewJob(Q, keep_for=1) for _ in range(2500)])
    await store.settle([Done(job.lease) for job in await store.take(Q, 2500)])
    clock.advance(1)
    waiting = asyncio.create_task(store.wait([Q], 60))
    while server.ask("EXISTS", f"{BASE}:done"):
        await asyncio.sleep(0.001)
        clock.advance(0.01)
    await store.enqueue([NewJob(Q)])
    assert await waiting


async def test_the_value_of_a_document_goes_when_it_has_ended(
    store: Store, server: RedisServer, clock: ManualClock
) -> None:
    await store.write("short", b"x" * 10_000, ttl=1)
    clock.advance(2)
    assert await store.read("another") is None
    assert server.ask("HSTRLEN", "accoda:{docs}:values", "short") < 40
    assert await store.write("short", b"y", version=0) == 2, "its versions go on"
    clock.advance(1)
    await store.write("short", b"", ttl=0)
    clock.advance(2 * 24 * 3600)
    await store.read("another")
    assert server.ask("HKEYS", "accoda:{docs}:values") == [""]


async def test_a_purge_of_many_is_done_in_pieces(store: Store, server: RedisServer) -> None:
    for _ in range(2):
        await store.enqueue([NewJob(Q)] * 2500)
    server.ask("CONFIG", "RESETSTAT")
    assert await store.purge(Q, "ready") == 5000
    calls = re.search(r"cmdstat_evalsha:calls=(\d+)", server.ask("INFO", "commandstats"))
    assert calls is not None and int(calls[1]) >= 5
    assert await store.purge(Q, "ready") == 0


class TestAFullServer:
    async def test_refuses_new_jobs_and_lets_workers_catch_up(self) -> None:
        with need(RedisServer) as server:
            async with await open_storage(server.url) as store:
                await store.enqueue([NewJob(Q, b"x" * 100, keep_for=60, key=str(n)) for n in range(1000)])
                expiring = await store.take(Q, 5, lease=0.05)
                server.ask("CONFIG", "SET", "maxmemory", "1mb")
                with pytest.raises(StorageFull, match="maxmemory"):
                    await store.enqueue([NewJob(Q), NewJob("other")])
                with pytest.raises(StorageFull):
                    await store.write("doc", b"1")
                await store.pause("later", None)
                await asyncio.sleep(0.06)
                jobs = await store.take(Q, 10)
                assert [(job.id, job.attempts) for job in jobs[:5]] == [(job.id, 1) for job in expiring]
                assert await store.extend([jobs[0].lease], 60) == []
                with pytest.raises(StorageFull):
                    await store.settle([Done(jobs[0].lease, then=[NewJob("next")])])
                assert await store.settle([*(Done(job.lease) for job in jobs[:8]), Retry(jobs[8].lease)]) == []
                stats = (await store.stats()).queues
                assert (stats[Q].ready, stats[Q].taken, stats[Q].done) == (991, 1, 8)
                assert "next" not in stats and "other" not in stats
                server.ask("CONFIG", "SET", "maxmemory", "0")
                assert len(await store.enqueue([NewJob(Q)])) == 1

    async def test_lets_jobs_that_report_end(self) -> None:
        with need(RedisServer) as server:
            async with await open_storage(server.url) as store:
                await store.enqueue([NewJob(Q, key=str(n), reports_to="flow") for n in range(4)])
                done, dead, cancelled, _ = await store.take(Q, 4)
                server.ask("CONFIG", "SET", "maxmemory", "1mb")
                with pytest.raises(StorageFull):
                    await store.enqueue([NewJob(Q)])
                assert await store.settle([Done(done.lease), Bury(dead.lease, "x")]) == []
                assert await store.change([Cancel(cancelled.id), Revive(dead.id)]) == 2
                assert await store.purge(Q, "taken") == 1
                (flow,) = await store.take("accoda.flows", 1)
                assert flow.waiters == 5

    async def test_can_be_worked_off_and_loses_nothing(self) -> None:
        with need(RedisServer) as server:
            async with await open_storage(server.url) as store:
                stored: list[int] = []
                used = int(re.search(r"used_memory:(\d+)", server.ask("INFO", "memory"))[1])  # type: ignore[index]
                server.ask("CONFIG", "SET", "maxmemory", used + 2_000_000)
                with pytest.raises(StorageFull, match=r"memory.*full.*nothing was changed.*purge"):
                    while True:
                        jobs = [NewJob(Q, b"x" * 200, key=f"{len(stored)}.{n}", keep_for=n % 2) for n in range(100)]
                        stored += [answer.id for answer in await store.enqueue(jobs)]
                assert (await store.stats()).queues[Q].ready == len(stored), "the refused call stored nothing"
                expiring = await store.take(Q, 500, lease=0.001)
                assert len(expiring) == 500
                with pytest.raises(StorageFull):
                    await store.settle([Done(expiring[0].lease, then=[NewJob(Q)])])
                with pytest.raises(StorageFull):
                    await store.settle([Bury(expiring[0].lease, "x", then=[NewJob(Q)])])
                done: dict[int, int] = {}
                while jobs_taken := await store.take(Q, 100):
                    assert await store.extend([job.lease for job in jobs_taken], 60) == []
                    outcomes = [Retry(job.lease) if job.attempts == 0 and job.id % 7 == 0 else Done(job.lease)
                                for job in jobs_taken]  # fmt: skip
                    assert await store.settle(outcomes) == []
                    done.update({outcome.lease.id: 1 for outcome in outcomes if isinstance(outcome, Done)})
                assert sorted(done) == stored
                await asyncio.sleep(1)
                await store.stats()
                assert len(await store.enqueue([NewJob(Q)] * 100)) == 100, "there is room again"

    async def test_can_be_purged(self) -> None:
        with need(RedisServer) as server:
            async with await open_storage(server.url) as store:
                await store.enqueue([NewJob(Q, b"x" * 100)] * 3000)
                await store.settle([Bury(job.lease, "x") for job in await store.take(Q, 2000)])
                server.ask("CONFIG", "SET", "maxmemory", "1mb")
                with pytest.raises(StorageFull):
                    await store.enqueue([NewJob(Q)])
                assert await store.purge(Q, "dead", limit=10) == 10
                assert await store.purge(Q, "dead") == 1990
                assert await store.purge(Q, "ready") == 1000

    async def test_with_a_policy_that_drops_keys_is_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        with need(lambda: RedisServer("none", "--maxmemory-policy", "volatile-lru")) as server:
            with caplog.at_level(logging.WARNING, "accoda.storage.redis"):
                await (await open_storage(server.url)).close()
            (record,) = caplog.records
            assert "volatile-lru" in record.getMessage() and "noeviction" in record.getMessage()
