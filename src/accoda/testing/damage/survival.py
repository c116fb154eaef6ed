"""Uses a store with damaged records in every way. Good jobs are done, nothing is raised, the rest is dead or gone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from accoda import Bury, Done, JobInfo, ManualClock, NewJob, Rank, Retry
from accoda.model import STATES
from accoda.storage.protocol import Store
from accoda.testing.damage import QUEUE, damage

OTHER = "other"
DAY = 24 * 3600
REASON = "unreadable record: "


async def use_it_all(store: Store, ids: Sequence[int], rng: Random) -> None:
    """Every verb, on every queue, and on a part of the jobs."""
    between = range(min(ids), max(ids))  # damaged ones too, before anything else has met them
    await store.start_now([rng.choice(between) for _ in range(200)])
    await store.stats()
    for state in STATES:
        for queue in (QUEUE, OTHER):
            for info in await store.browse(queue, state, limit=10_000):
                assert info.state == state
    for id in rng.sample(ids, min(len(ids), 200)):
        await store.find(id)
        place = await store.place(id, rng.choice((1, 20, 1000)))
        assert place is None or (place.job.id == id and 0 <= place.newer <= place.ahead)
    await store.wait([QUEUE, OTHER], 0)
    await store.documents("")
    await store.read("damaged/1")
    assert await store.write("damaged/1", b"new") >= 1
    found = await store.read("damaged/1")
    assert found is not None and found.value == b"new"
    await store.rerank([Rank(QUEUE, id, 1.0) for id in rng.sample(ids, min(len(ids), 50))])
    for mode in ("keep", "attach", "replace"):
        job = NewJob(QUEUE, b"keyed", key=f"held-by-nobody-{rng.randrange(20)}", on_duplicate=mode)
        (answer,) = await store.enqueue([job])
        assert await store.find(answer.id) is not None, f"{mode} gave an id of nothing"
        seen = await store.peek(QUEUE, job.key, after=0)
        assert seen.job is not None and seen.job.id == answer.id, f"{mode} left the key to another"
        if rng.random() < 0.2:
            assert await store.drop(QUEUE, answer.id, seen.job.waiters)
    for queue in (QUEUE, OTHER):
        seen = await store.peek(queue, after=0)
        assert seen.job is None or seen.job.state == "ready"


async def work(store: Store, clock: ManualClock, queue: str, seen: dict[int, bytes]) -> None:
    """Take until nothing comes, and settle in every way; a job is done the second time at the latest."""
    idle = 0
    while idle < 3:
        jobs = await store.take(queue, 50, lease=60)
        idle = 0 if jobs or await store.wait([queue], 0) else idle + 1
        await store.extend([job.lease for job in jobs[:5]], 60)
        for job in jobs[:5]:
            await store.waiters(job.lease)
        outcomes = [Retry(job.lease, reason="again") if job.attempts == 0 and job.id % 3 == 0 else Done(job.lease)
                    for job in jobs]  # fmt: skip
        refused = {each.lease for each in await store.settle(outcomes)}
        for outcome, job in zip(outcomes, jobs, strict=True):
            if isinstance(outcome, Done) and job.lease not in refused:
                assert job.id not in seen, "done twice"
                seen[job.id] = job.data


async def survive(store: Store, clock: ManualClock, rng: Random, count: int) -> tuple[int, list[JobInfo]]:
    """Good jobs among `count` damaged ones, in the same queue and in another; the dead that are left."""
    good: dict[int, bytes] = {}

    async def add(queue: str, number: int) -> None:
        jobs = [NewJob(queue, b"good-%d" % n, rank=float(n % 3), keep_for=n % 2, delay=n % 5 or None,
                       key=f"good-{len(good)}-{n}" if n % 4 == 0 else None) for n in range(number)]  # fmt: skip
        answers = await store.enqueue(jobs)
        assert {answer.what for answer in answers} == {"created"}
        good.update({answer.id: job.data for answer, job in zip(answers, jobs, strict=True)})

    await add(QUEUE, 300)
    await add(OTHER, 100)
    spoiled = await damage(store, rng, count)
    await add(QUEUE, 300)
    assert len(good) == 700, "an id was given twice"
    ids = [*good]
    await use_it_all(store, ids, rng)
    seen: dict[int, bytes] = {}
    for _ in range(3):
        for queue in (QUEUE, OTHER):
            await work(store, clock, queue, seen)
        await use_it_all(store, ids, rng)
        clock.advance(DAY)
        for _ in range(count // 500 + 5):
            await store.stats()
    await work(store, clock, QUEUE, seen)
    assert {id: seen.get(id) for id in good} == good, "a good job was lost or changed"
    dead = await store.browse(QUEUE, "dead", limit=100_000)
    stats = (await store.stats()).queues[QUEUE]
    assert (stats.ready, stats.delayed, stats.taken, stats.dead) == (0, 0, 0, len(dead)), stats
    await throw_away(store, dead)
    return spoiled, dead


async def throw_away(store: Store, dead: list[JobInfo]) -> None:
    """What was set aside is found, revived, buried again, removed and purged as any dead job."""
    aside = [job for job in dead if (job.reason or "").startswith(REASON)]
    for job in aside[:5]:
        found = await store.find(job.id)
        assert found is not None and (found.state, found.reason) == ("dead", job.reason)
    revived = await store.revive([job.id for job in aside[:3]])
    back = await store.take(QUEUE, 10)
    assert len(back) == revived
    assert await store.settle([Bury(job.lease, "no good") for job in back]) == []
    assert await store.remove([job.id for job in dead[-3:]]) == min(3, len(dead))
    left = max(0, len(dead) - 3)
    assert await store.purge(QUEUE, "dead", limit=7) == min(7, left)
    assert await store.purge(QUEUE, "dead") == max(0, left - 7)
    assert (await store.stats()).queues[QUEUE].dead == 0
