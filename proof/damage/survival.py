"""Uses a store with damaged records in every way: nothing is raised, and every good job is done once."""

from __future__ import annotations

from random import Random

from accoda import (
    Bury,
    ById,
    Done,
    Head,
    JobInfo,
    ManualClock,
    NewJob,
    Remove,
    Rerank,
    Retry,
    Revive,
    StartNow,
)
from accoda.model import STATES
from accoda.storage.protocol import Store
from proof.damage import QUEUE, damage

OTHER = "other"
DAY = 24 * 3600
REASON = "unreadable record: "


async def survive(store: Store, clock: ManualClock, rng: Random, count: int) -> tuple[int, list[JobInfo]]:
    """Good jobs among `count` damaged ones, in the same queue and in another: how many were damaged, and the dead."""
    good: dict[int, bytes] = {}
    await _add(store, QUEUE, 300, good)
    await _add(store, OTHER, 100, good)
    spoiled = await damage(store, rng, count)
    await _add(store, QUEUE, 300, good)
    assert len(good) == 700, "an id was given twice"
    done: dict[int, bytes] = {}
    for _ in range(4):
        await _use_all_verbs(store, [*good], rng)
        for queue in (QUEUE, OTHER):
            await _work(store, queue, done)
        clock.advance(DAY)
        for _ in range(count // 500 + 5):  # one call applies a bounded part of what is due
            await store.stats()
    assert {id: done.get(id) for id in good} == good, "a good job was lost or changed"
    dead = await store.browse(QUEUE, "dead", limit=100_000)
    await _clear(store, dead)
    return spoiled, dead


async def _add(store: Store, queue: str, count: int, good: dict[int, bytes]) -> None:
    jobs = [
        NewJob(
            queue, b"good-%d" % n, rank=float(n % 3), keep_for=n % 2, delay=n % 5 or None,
            key=f"good-{len(good)}-{n}" if n % 4 == 0 else None,
        )
        for n in range(count)
    ]  # fmt: skip
    answers = await store.enqueue(jobs)
    assert {answer.what for answer in answers} == {"created"}
    good.update({answer.id: job.data for answer, job in zip(answers, jobs, strict=True)})


async def _use_all_verbs(store: Store, ids: list[int], rng: Random) -> None:
    """What producers, workers, demand and people ask; half of it about jobs that may be damaged."""
    some = [rng.randrange(min(ids), max(ids)) for _ in range(100)]
    await store.change([StartNow(id) for id in some] + [Rerank(id, 1.0) for id in some])
    await store.stats()
    await store.wait([QUEUE, OTHER], 0)
    for queue in (QUEUE, OTHER):
        await store.look(Head(queue), waiters_after=0)
        for state in STATES:
            await store.browse(queue, state, limit=10_000)
            await store.browse(queue, state, order="id", limit=10_000)
    for id in some + rng.sample(ids, 100):
        await store.look(ById(id), waiters_after=0, ahead=True)
    for mode in ("keep", "rerank", "attach", "replace"):
        new = NewJob(QUEUE, b"keyed", key=f"held-by-none-{rng.randrange(20)}", on_duplicate=mode)
        (answer,) = await store.enqueue([new])
        assert (await store.look(ById(answer.id))).job is not None, f"{mode} gave the id of no job"
    await store.documents("")
    assert await store.write("damaged/1", b"new") >= 1
    found = await store.read("damaged/1")
    assert found is not None
    assert found.value == b"new"


async def _work(store: Store, queue: str, done: dict[int, bytes]) -> None:
    """Take until nothing comes, and settle in every way; a job is done the second time at the latest."""
    idle = 0
    while idle < 3:
        jobs = await store.take(queue, 50, lease=60)
        idle = 0 if jobs or await store.wait([queue], 0) else idle + 1
        await store.extend([job.lease for job in jobs[:5]], 60)
        outcomes = [
            Retry(job.lease, reason="again") if job.attempts == 0 and job.id % 3 == 0 else Done(job.lease)
            for job in jobs
        ]
        refused = {each.lease for each in await store.settle(outcomes)}
        for outcome, job in zip(outcomes, jobs, strict=True):
            if isinstance(outcome, Done) and job.lease not in refused:
                assert job.id not in done, "done twice"
                done[job.id] = job.data


async def _clear(store: Store, dead: list[JobInfo]) -> None:
    """What was buried can be revived, buried again, removed and purged as any dead job."""
    await store.change([Revive(job.id) for job in dead[:3]])
    again = await store.take(QUEUE, 10)
    assert await store.settle([Bury(job.lease, "no good") for job in again]) == []
    await store.change([Remove(job.id) for job in dead[-3:]])
    await store.purge(QUEUE, "dead", limit=7)
    await store.purge(QUEUE, "dead")
    assert await store.browse(QUEUE, "dead") == []
