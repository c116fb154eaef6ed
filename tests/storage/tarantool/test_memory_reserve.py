"""Memory of a Tarantool server: nothing is left behind, a full one loses nothing and is worked off."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer, administer, empty

from accoda import Bury, Done, ManualClock, NewJob, Remove, Retry, Revive, open_storage
from accoda.errors import StorageFull
from accoda.model import REPORTS, Lanes
from accoda.storage.protocol import Store

Q = "q"
SIZES = """
    local sizes = {}
    for _, name in ipairs({
        'jobs', 'keys', 'waiters', 'kept', 'lanes', 'documents', 'tombstones', 'numbers', 'answers', 'rules',
    }) do
        sizes[#sizes + 1] = box.space['accoda_' .. name]:len()
    end
    return sizes
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def store(server: TarantoolServer, clock: ManualClock) -> AsyncIterator[Store]:
    async with await open_storage(server.url, clock=clock) as store:
        await empty(server.url)
        yield store


async def cycle(store: Store, clock: ManualClock, n: int) -> None:
    """Everything that can happen to a job and a document, and its end."""
    await store.set_lanes(Q, Lanes(limit=7, fair=True, weights={"a": n % 7 + 1}))
    await store.enqueue([NewJob(Q, b"x" * 40, rank=n % 3, lane=lane) for lane in ("a", "a", f"once-{n}", None)])
    modes = ("keep", "attach", "replace")
    await store.enqueue([NewJob(Q, key=f"k{n}", on_duplicate=mode, waiter=b"w") for mode in modes])
    await store.enqueue([NewJob(Q, delay=1), NewJob(Q, keep_for=2, key=f"kept{n}", reports_to="flow")])
    await store.take(Q, 3, lease=1)
    clock.advance(1)
    jobs = await store.take(Q, 10)
    assert len(jobs) == 7
    await store.extend([job.lease for job in jobs[:2]], 30)
    ends = [Retry(jobs[0].lease, delay=1), Bury(jobs[1].lease, "x"), *(Done(job.lease) for job in jobs[2:])]
    assert await store.settle(ends) == []
    await store.write(f"doc{n}", b"y" * 200, ttl=1)
    clock.advance(2)
    if n % 3 == 0:
        assert await store.change([Revive(jobs[1].id)]) == 1
    elif n % 3 == 1:
        assert await store.purge(Q, "dead", before=clock.now()) == 1
    else:
        assert await store.change([Remove(jobs[1].id)]) == 1
    await store.settle([Done(job.lease) for job in await store.take(Q, 10)])
    await store.set_lanes(Q, None)
    (flow,) = await store.take(REPORTS, 2)
    assert await store.settle([Done(flow.lease, waiters=1)]) == []


async def test_cycles_of_everything_leave_nothing_behind(
    server: TarantoolServer, store: Store, clock: ManualClock
) -> None:
    for n in range(300):
        await cycle(store, clock, n)
    clock.advance(3 * 24 * 3600)
    for _ in range(20):
        await store.stats()
        await store.write("last", b"")
    jobs, keys, waiters, kept, lanes, documents, tombstones, *numbers = await administer(server.url, SIZES)
    assert (jobs, keys, waiters, kept, lanes, documents, tombstones) == (0, 0, 0, 0, 0, 1, 0)
    assert max(numbers) <= 5


class TestAFullServer:
    async def test_can_be_worked_off_and_loses_nothing(self) -> None:
        with need(lambda: TarantoolServer(memory=64 * 1024 * 1024)) as server:
            async with await open_storage(server.url) as store:
                stored: list[int] = []
                with pytest.raises(StorageFull, match=r"out of memory.*nothing was changed.*memtx_memory"):
                    while True:
                        jobs = [
                            NewJob(Q, b"x" * 2000, keep_for=n % 2, key=f"{len(stored)}.{n}", reports_to=f"flow {n % 7}")
                            for n in range(200)
                        ]
                        stored += [answer.id for answer in await store.enqueue(jobs)]
                assert len(stored) > 5_000
                assert (await store.stats()).queues[Q].ready == len(stored), "the refused call stored nothing"
                first, *others = await store.take(Q, 1500)
                with pytest.raises(StorageFull):
                    await store.write("doc", b"x")
                with pytest.raises(StorageFull):
                    await store.settle([Done(first.lease, then=[NewJob(Q)])])
                with pytest.raises(StorageFull):
                    await store.settle([Bury(first.lease, "x", then=[NewJob(Q)])])
                with pytest.raises(StorageFull):
                    await store.settle([Retry(first.lease, then=[NewJob(Q)])])
                assert await store.settle([Done(first.lease), *(Retry(job.lease) for job in others)]) == []
                done = {first.id}
                while taken := await store.take(Q, 500):
                    assert await store.extend([job.lease for job in taken], 60) == []
                    assert await store.settle([Done(job.lease) for job in taken]) == []
                    done.update(job.id for job in taken)
                assert sorted(done) == stored
                assert sum(flow.waiters for flow in await store.take(REPORTS, 10)) == len(stored), (
                    "each end is reported"
                )
                while await store.browse(Q, "done", limit=1):
                    await store.purge(Q, "done")
                assert len(await store.enqueue([NewJob(Q, b"x" * 2000)] * 100)) == 100, "there is memory again"
