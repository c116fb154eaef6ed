"""Many callers of one Tarantool storage at once: their calls go together, and none of them can tell."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from proof.servers.tarantool import TarantoolServer, administer

from accoda import Done, Job, NewJob, Refused, Retry, Store
from accoda.errors import StorageError

Q = "q"
REFUSE = """
    function refuse(_, new) if new ~= nil and new[4] == 'bad' then error('no') end return new end
    box.space.accoda_jobs:before_replace(refuse) return 0
"""


@pytest.fixture
def sent(store: Store, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the server was asked for each verb."""
    client: Any = store._client  # type: ignore[attr-defined]
    counted: Counter[str] = Counter()
    real = client.once

    async def once(verb: str, *args: Any) -> Any:
        counted[verb] += 1
        return await real(verb, *args)

    monkeypatch.setattr(client, "once", once)
    return counted


async def fill(store: Store, count: int) -> list[Job]:
    """Take as many jobs as are stored here."""
    await store.enqueue([NewJob(Q, b"%d" % n) for n in range(count)])
    return await store.take(Q, count)


async def test_a_hundred_producers_take_a_few_round_trips(store: Store, sent: Counter[str]) -> None:
    async def produce(name: int) -> list[int]:
        return [(await store.enqueue([NewJob(Q, b"%d %d" % (name, n))]))[0].id for n in range(5)]

    answers = await asyncio.gather(*(produce(name) for name in range(100)))
    assert sent["enqueue"] < 30
    assert all(ids == sorted(ids) for ids in answers)
    jobs = await store.take(Q, 500)
    assert {job.data: job.id for job in jobs} == {
        b"%d %d" % (name, n): id for name, ids in enumerate(answers) for n, id in enumerate(ids)
    }


async def test_each_caller_gets_the_answers_to_its_own_jobs(store: Store) -> None:
    await store.enqueue([NewJob(Q, b"held", key="k")])
    some = [NewJob(Q, b"now"), NewJob(Q, b"late", delay=60), NewJob(Q, key="k")]
    answers = await asyncio.gather(*(store.enqueue(some if n % 2 else [NewJob(Q, b"%d" % n)]) for n in range(10)))
    assert [[answer.what for answer in each] for each in answers] == [["created"], ["created", "created", "kept"]] * 5
    by_id = {job.id: job.data for job in await store.take(Q, 100)}
    assert [by_id[each[0].id] for each in answers] == [b"now" if n % 2 else b"%d" % n for n in range(10)]


async def test_only_the_call_that_the_server_refuses_fails(server: TarantoolServer, store: Store) -> None:
    await administer(server.url, REFUSE)
    try:
        calls = [[NewJob(Q, b"good"), NewJob(Q, b"bad" if n == 5 else b"good")] for n in range(10)]
        answers = await asyncio.gather(*map(store.enqueue, calls), return_exceptions=True)
    finally:
        await administer(server.url, "box.space.accoda_jobs:before_replace(nil, refuse) return 0")
    assert isinstance(answers[5], StorageError)
    assert all(isinstance(each, list) and len(each) == 2 for n, each in enumerate(answers) if n != 5)
    assert (await store.stats()).queues[Q].ready == 18, "nothing of the refused call is left"


async def test_each_job_goes_to_one_taker_and_the_first_gets_the_first(store: Store, sent: Counter[str]) -> None:
    await store.enqueue([NewJob(Q, b"%d" % n, rank=float(n)) for n in range(40)])
    shares = await asyncio.gather(*(store.take(Q, 3) for _ in range(16)))
    assert [len(share) for share in shares] == [3] * 13 + [1, 0, 0]
    assert [job.data for share in shares for job in share] == [b"%d" % n for n in range(40)]
    assert sent["take"] == 2


async def test_what_was_taken_for_a_cancelled_caller_is_given_back(store: Store, sent: Counter[str]) -> None:
    await store.enqueue([NewJob(Q, b"%d" % n) for n in range(10)])
    takes = [asyncio.create_task(store.take(Q, 1)) for _ in range(10)]
    while sent["take"] < 2:
        await asyncio.sleep(0)
    takes[4].cancel()
    await asyncio.gather(*takes, return_exceptions=True)
    async with asyncio.timeout(10):
        while not (given_back := await store.take(Q, 10)):
            assert await store.wait([Q], 10)
    assert [(job.attempts, job.tries) for job in given_back] == [(1, 0)]
    taken = [job.data for n, take in enumerate(takes) if n != 4 for job in take.result()]
    assert {*taken, given_back[0].data} == {b"%d" % n for n in range(10)}


async def test_a_cancelled_take_gives_its_jobs_back_at_once(store: Store) -> None:
    ids = [answer.id for answer in await store.enqueue([NewJob(Q)] * 3)]
    taking = asyncio.create_task(store.take(Q, 3, lease=3600))
    for _ in range(2):
        await asyncio.sleep(0)  # the request is on its way
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert await asyncio.wait_for(store.wait([Q], 60), 10)
    taken = await store.take(Q, 9)
    assert [(job.id, job.attempts, job.tries, job.crashes) for job in taken] == [(id, 1, 0, 0) for id in ids]


async def test_single_outcomes_go_together(store: Store, sent: Counter[str]) -> None:
    jobs = await fill(store, 100)
    assert await asyncio.gather(*(store.settle([Done(job.lease)]) for job in jobs)) == [[]] * 100
    assert sent["settle"] <= 3
    stats = (await store.stats()).queues[Q]
    assert (stats.total, stats.done) == (0, 100)


async def test_a_lost_lease_is_refused_to_its_own_caller(store: Store) -> None:
    jobs = await fill(store, 10)
    await store.settle([Retry(jobs[3].lease)])
    answers = await asyncio.gather(*(store.settle([Done(job.lease)]) for job in jobs))
    assert answers == [[Refused(jobs[3].lease, "lost")] if n == 3 else [] for n in range(10)]


async def test_of_two_callers_that_settle_one_job_the_first_does(store: Store) -> None:
    jobs = await fill(store, 3)
    answers = await asyncio.gather(*(store.settle([Done(job.lease)]) for job in jobs for _ in range(2)))
    assert answers == [answer for job in jobs for answer in ([], [Refused(job.lease, "lost")])]


async def test_outcomes_with_follow_ups_are_settled_each_by_itself(store: Store, sent: Counter[str]) -> None:
    jobs = await fill(store, 6)
    ends = [Done(job.lease, then=[NewJob("next", job.data)] if n % 2 else []) for n, job in enumerate(jobs)]
    assert await asyncio.gather(*(store.settle([end]) for end in ends)) == [[]] * 6
    assert {job.data for job in await store.take("next", 10)} == {b"1", b"3", b"5"}
    assert sent["settle"] >= 4
