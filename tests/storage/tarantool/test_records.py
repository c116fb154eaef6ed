"""Tuples that no Accoda wrote: they stop no worker, and a take that meets one buries it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio
from proof.damage.survival import survive
from proof.servers.tarantool import TarantoolServer, administer, empty

from accoda import ById, ByKey, Done, Head, ManualClock, NewJob, Remove, Revive, open_storage
from accoda.storage.protocol import Store
from accoda.storage.tarantool.errors import ServerError
from accoda.storage.tarantool.records import UNREADABLE

Q = "q"
NOW = 1_800_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest_asyncio.fixture
async def store(server: TarantoolServer, clock: ManualClock) -> AsyncIterator[Store]:
    async with await open_storage(server.url, clock=clock) as store:
        await empty(server.url)
        yield store


async def change(server: TarantoolServer, id: int, what: str) -> None:
    await administer(server.url, f"box.space.accoda_jobs:update({id}, {{{{'=', {what}}}}}) return 0")


@pytest.mark.parametrize("seed", range(3))
async def test_thousands_of_damaged_records_lose_no_good_job_and_raise_nothing(
    store: Store, clock: ManualClock, seed: int
) -> None:
    damaged, dead = await survive(store, clock, Random(seed), 1200)
    assert damaged > 800
    assert len([job for job in dead if job.reason == UNREADABLE]) > 200


UNDECODABLE = ["'data', {1, 2}", "'data', 7", "'worker', '\\xff'", "'key', '\\xff'", "'attempts', 2ULL ^ 63"]


@pytest.mark.parametrize("what", [*UNDECODABLE[:2], UNDECODABLE[3]])
async def test_a_take_buries_what_it_cannot_decode_and_gives_the_next(
    server: TarantoolServer, store: Store, clock: ManualClock, what: str
) -> None:
    bad, good = [answer.id for answer in await store.enqueue([NewJob(Q, b"bad"), NewJob(Q, b"good")])]
    await change(server, bad, what)
    (job,) = await store.take(Q, 2)
    assert job.id == good
    (dead,) = await store.browse(Q, "dead")
    assert (dead.id, dead.ended_at, dead.reason) == (bad, NOW, UNREADABLE)
    assert b"bad" in dead.data or "data" in what
    stats = (await store.stats()).queues[Q]
    assert (stats.ready, stats.taken, stats.dead, stats.buried) == (0, 1, 1, 1)
    assert await store.change([Revive(bad)]) == 1
    assert await store.take(Q, 1) == []
    assert await store.change([Remove(bad)]) == 1


@pytest.mark.parametrize("what", UNDECODABLE)
async def test_people_see_where_an_undecodable_job_stands(server: TarantoolServer, store: Store, what: str) -> None:
    jobs = [NewJob(Q, b"bad", rank=-1.0, key="k", waiter=b"w"), NewJob(Q, b"good")]
    bad, good = [answer.id for answer in await store.enqueue(jobs)]
    await change(server, bad, what)
    for target in (ById(bad), ByKey(Q, "k"), Head(Q)):
        seen = await store.look(target, waiters_after=0, ahead=True)
        assert seen.job is not None
        assert (seen.job.id, seen.job.state, seen.job.rank, seen.ahead) == (bad, "ready", -1.0, 0)
    assert [job.id for job in await store.browse(Q, "ready")] == [bad, good]
    page = await store.browse(Q, "ready", limit=1)
    assert [job.id for job in await store.browse(Q, "ready", after=page[-1].cursor())] == [good]


async def test_the_format_of_the_space_refuses_most_of_it(server: TarantoolServer, store: Store) -> None:
    (answer,) = await store.enqueue([NewJob(Q)])
    for what in ("'rank', 'high'", "'cost', -1", "'attempts', 1.5", "'tries', 'x'", "'key', 7", "'created_at', -1"):
        with pytest.raises(ServerError, match="type"):
            await change(server, answer.id, what)


async def test_an_undecodable_waiter_is_still_one_and_a_missing_one_hides_no_other(
    server: TarantoolServer, store: Store
) -> None:
    names = [b"%d" % n for n in range(5)]
    for key in ("k", "other"):
        await store.enqueue([NewJob(Q, key=key, on_duplicate="attach", waiter=name) for name in names])
    (job,) = await store.take(Q, 1)
    damage = f"local w = box.space.accoda_waiters w:delete({{{job.id}, 3}}) w:replace({{{job.id}, 2, 7}}) return 0"
    await administer(server.url, damage)
    assert (await store.look(ById(job.id), waiters_after=0)).waiters == (b"0", b"\x07", b"3", b"4")
    assert (await store.look(ByKey(Q, "k"), waiters_after=4)).waiters == (b"4",)
    assert (await store.look(ByKey(Q, "other"), waiters_after=4)).waiters == (b"4",)


async def test_wrong_counts_stop_no_job(server: TarantoolServer, store: Store, clock: ManualClock) -> None:
    await store.enqueue([NewJob(Q)])
    await store.take(Q, 1, lease=5)
    await administer(server.url, "box.space.accoda_queues:update(1, {{'=', 'taken', 0}, {'=', 'ready', 0}}) return 0")
    clock.advance(5)
    assert await store.wait([Q], 0)
    (again,) = await store.take(Q, 1)
    assert again.attempts == 1
    assert await store.settle([Done(again.lease)]) == []


async def test_a_key_that_no_job_holds_is_free(server: TarantoolServer, store: Store) -> None:
    await store.enqueue([NewJob(Q)])
    await administer(server.url, "box.space.accoda_keys:replace({1, 'k', 77777}) return 0")
    (answer,) = await store.enqueue([NewJob(Q, key="k", on_duplicate="attach", waiter=b"w")])
    assert answer.what == "created"


async def test_an_undecodable_document_is_none_until_it_is_written_again(server: TarantoolServer, store: Store) -> None:
    await store.write("good", b"1")
    await store.write("bad", b"1")
    await administer(server.url, "box.space.accoda_documents:update('bad', {{'=', 'value', {1, 2}}}) return 0")
    assert await store.read("bad") is None
    assert [document.name for document in await store.documents("")] == ["good"]
    assert await store.write("bad", b"2") == 2
    assert await store.read("bad") is not None
