"""The network between clients and server is cut, slow, silent or tears replies apart. The server is well."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from proof.chaos.faults import Target
from proof.chaos.faults.clients import Clients
from proof.chaos.faults.network import BadNetwork, TornReplies
from proof.proxy import BLACK_HOLE, REPLIES_VANISH, NetworkConditions

from accoda import NewJob, open_storage
from accoda.errors import StorageUnavailable
from accoda.storage.protocol import Store

T = TypeVar("T")
HANG = 30.0  # seconds; nothing here may take so long, unless a call hangs


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param(NetworkConditions(cut=True), id="cut"),
        pytest.param(NetworkConditions(hold=True), id="held back"),
        pytest.param(NetworkConditions(delay=(0.0, 0.02)), id="delayed"),
        pytest.param(NetworkConditions(bandwidth=200_000), id="slow"),
    ],
)
async def test_on_a_bad_network_calls_wait_or_say_so_and_go_on_after_it(
    target: Target, store: Store, conditions: NetworkConditions, queue: str
) -> None:
    clients = Clients(store, queue=queue)
    async with asyncio.timeout(HANG):
        async with clients.running():
            await BadNetwork(target, "bad network", conditions, 0.3, 0.5).strike(random.Random(1))
            await clients.go_on()
        await clients.finish()
    assert all(isinstance(error, StorageUnavailable) for error in clients.errors), clients.errors


async def test_torn_replies_lose_nothing_and_do_nothing_twice(target: Target, store: Store, queue: str) -> None:
    assert target.proxy is not None
    before = target.proxy.torn
    clients = Clients(store, queue=queue)
    async with asyncio.timeout(HANG):
        async with clients.running():
            await TornReplies(target, most=8, longest=1.0).strike(random.Random(3))
            await clients.go_on()
        await clients.finish()
    assert target.proxy.torn > before
    assert all(isinstance(error, StorageUnavailable) for error in clients.errors), clients.errors


@pytest.mark.parametrize("after", [0, 1, 7, 40])
async def test_a_torn_reply_is_never_taken_for_a_whole_one(
    target: Target, store: Store, after: int, queue: str
) -> None:
    assert target.proxy is not None
    async with asyncio.timeout(HANG):
        await store.enqueue([NewJob(queue, b"payload") for _ in range(3)])
        target.proxy.tear_next_reply(after=after)
        jobs = await store.take(queue, 3, lease=0.5)  # asked again, the server gives the rest or the same
        while len(jobs) < 3:
            await store.wait([queue], 2.0)
            jobs += await store.take(queue, 3, lease=60)
        assert {job.data for job in jobs} == {b"payload"}


async def at_last(call: Callable[[], Awaitable[T]]) -> T:
    """A busy disk, too, may be silent for longer than these tests have patience: then once more."""
    while True:
        with contextlib.suppress(StorageUnavailable):
            return await call()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("hole", [BLACK_HOLE, REPLIES_VANISH], ids=["both ways", "replies only"])
class TestBlackHole:
    async def test_every_call_ends_in_bounded_time_and_the_storage_goes_on_after_it(
        self, target: Target, hole: NetworkConditions, queue: str
    ) -> None:
        assert target.proxy is not None
        async with asyncio.timeout(HANG), await open_impatient(target) as store:
            await at_last(lambda: store.enqueue([NewJob(queue)] * 5))
            (job, *_) = await at_last(lambda: store.take(queue, 5, lease=60))
            with target.proxy.during(hole):
                calls = [store.enqueue([NewJob(queue)]), store.take(queue, 1), store.extend([job.lease], 60)]
                calls += [store.stats(), store.wait([queue], 1.0), store.wait(["other"], 1.0)]
                answers = await asyncio.gather(*calls, return_exceptions=True)
                assert [type(answer) for answer in answers[:4]] == [StorageUnavailable] * 4
                assert all(not isinstance(each, BaseException) or type(each) is StorageUnavailable for each in answers)
            # The old connections stay silent for ever; the storage has to leave them by itself.
            assert len(await at_last(lambda: store.enqueue([NewJob(queue)]))) == 1
            assert await at_last(lambda: store.extend([job.lease], 60)) == []

    async def test_the_error_says_that_no_answer_came(
        self, target: Target, hole: NetworkConditions, queue: str
    ) -> None:
        assert target.proxy is not None
        async with asyncio.timeout(HANG), await open_impatient(target) as store:
            with target.proxy.during(hole), pytest.raises(StorageUnavailable, match=r"answer|cannot be reached"):
                await store.enqueue([NewJob(queue)])

    async def test_clients_go_on_and_nothing_acknowledged_is_lost(
        self, target: Target, hole: NetworkConditions, queue: str
    ) -> None:
        async with asyncio.timeout(HANG), await open_impatient(target) as store:
            clients = Clients(store, queue=queue)
            async with clients.running():
                await BadNetwork(target, "black hole", hole, 1.2, 1.5).strike(random.Random(1))
                await clients.go_on()
            await clients.finish()
        assert all(isinstance(error, StorageUnavailable) for error in clients.errors), clients.errors

    async def test_opening_a_storage_ends_in_bounded_time(self, target: Target, hole: NetworkConditions) -> None:
        assert target.proxy is not None
        with target.proxy.during(hole), pytest.raises(StorageUnavailable):
            async with asyncio.timeout(HANG):
                await open_impatient(target)


@pytest.mark.usefixtures("impatient")
class TestSilence:
    """A server that has nothing to say is not given up; one that is dead is."""

    async def test_a_long_wait_for_a_job_keeps_its_connections(self, target: Target, queue: str) -> None:
        assert target.proxy is not None
        async with asyncio.timeout(HANG), await open_impatient(target) as store:
            for _ in range(4):  # where the machine itself pauses for that long, a connection is rightly given up
                await store.wait([queue], 0.1)
                before = target.proxy.accepted
                assert not await store.wait([queue], 1.5)  # five times as long as a silence
                if target.proxy.accepted == before:
                    return
            pytest.fail("each wait took new connections")

    async def test_the_patience_of_many_calls_does_not_add_up(self, target: Target, queue: str) -> None:
        """Each call gives up by itself: the twentieth does not wait twenty times as long as the first."""
        assert target.proxy is not None
        url_options = {"postgres": "&pool=1"}.get(target.kind, "")
        async with asyncio.timeout(HANG), await open_impatient(target, url_options) as store:
            await store.enqueue([NewJob(queue)])
            with target.proxy.during(BLACK_HOLE):
                async with asyncio.timeout(8):
                    calls = [store.take(queue, 1) for _ in range(20)]
                    waits = [store.wait([f"{queue}.{number}"], 60) for number in range(20)]
                    answers = await asyncio.gather(*calls, *waits, return_exceptions=True)
                assert {type(answer) for answer in answers} == {StorageUnavailable}

    async def test_a_waiting_call_hears_of_jobs_again_after_a_black_hole(
        self, target: Target, queue: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accoda.storage.postgres.wakeups.PING_EACH", 0.2)
        monkeypatch.setattr("accoda.storage.postgres.wakeups.PING_PATIENCE", 0.2)
        assert target.proxy is not None
        async with asyncio.timeout(HANG), await open_impatient(target) as store:
            await store.wait([queue], 0.1)
            with target.proxy.during(BLACK_HOLE), contextlib.suppress(StorageUnavailable):
                await store.wait([queue], 1.0)
            sleeping = asyncio.create_task(store.wait([queue], 60))
            async with await open_storage(target.url) as other:
                await other.enqueue([NewJob(queue)])
                assert await sleeping


async def open_impatient(target: Target, more: str = "") -> Store:
    options = {"redis": "?timeout=0.5", "postgres": "?connect_timeout=1", "tarantool": ""}
    return await open_storage(target.url + options[target.kind] + more)
