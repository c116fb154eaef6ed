"""What all parts of the suite share: the base class, the `store` fixture, and helpers for common steps."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from accoda.model import Bury, ById, Cancel, Done, Job, JobInfo, Lanes, Lease, NewJob, QueueStats, Refused, State
from accoda.storage.protocol import Store
from accoda.testing.store_fixture import StoreFixture

Q = "q"
HOUR = 3600.0
WAITING: tuple[State, ...] = ("ready", "held", "delayed")


@pytest_asyncio.fixture
async def store(fixture: StoreFixture) -> AsyncIterator[Store]:
    """A handle on the store of this test's fixture."""
    handle = await fixture.open()
    yield handle
    await handle.close()


class Suite:
    """A group of tests. Each has a time limit in seconds, so that a storage that hangs fails.

    `ACCODA_TIME_LIMIT` sets another limit, for a slow server or for a run that is expected to fail.
    """

    pytestmark = pytest.mark.asyncio
    limit = 10.0

    def __init_subclass__(cls) -> None:
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _limited(test, float(os.environ.get("ACCODA_TIME_LIMIT", cls.limit))))


def _limited(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return run


def need_exact(fixture: StoreFixture) -> None:
    """For tests of a single millisecond."""
    if not fixture.exact:
        pytest.skip("time does not stand still in this fixture")


def need_shared(fixture: StoreFixture) -> None:
    """For tests with several handles or processes."""
    if not fixture.shared:
        pytest.skip("this store has one handle only")


def close_to(fixture: StoreFixture, moment: int | None, expected: int) -> bool:
    """Whether a moment is the expected one, as exactly as this fixture can tell."""
    return moment is not None and abs(moment - expected) <= (0 if fixture.exact else 2_000)


async def add(store: Store, *jobs: NewJob) -> list[int]:
    """Enqueue in one call and give the ids."""
    return [answer.id for answer in await store.enqueue(jobs)]


async def add_one(store: Store, job: NewJob) -> int:
    (id,) = await add(store, job)
    return id


async def take_one(store: Store, queue: str = Q, *, lease: float = 60.0, worker: str = "") -> Job:
    """Take the head, which must be there."""
    jobs = await store.take(queue, 1, lease=lease, worker=worker)
    assert len(jobs) == 1, f"nothing to take in {queue!r}"
    return jobs[0]


async def take_ids(store: Store, queue: str = Q, count: int = 100, *, max_cost: int | None = None) -> list[int]:
    return [job.id for job in await store.take(queue, count, lease=HOUR, max_cost=max_cost)]


async def find(store: Store, id: int) -> JobInfo | None:
    return (await store.look(ById(id))).job


async def info_of(store: Store, id: int) -> JobInfo:
    """All about a job, which must exist."""
    info = await find(store, id)
    assert info is not None, f"job {id} is gone"
    return info


async def state_of(store: Store, id: int) -> str:
    info = await find(store, id)
    return "gone" if info is None else info.state


async def waiters_of(store: Store, lease: Lease) -> list[bytes]:
    """What the holder of a lease reads before it settles; nothing if the lease is lost."""
    seen = await store.look(ById(lease.id), waiters_after=0)
    job = seen.job
    if job is None or (job.state, job.queue, job.attempts) != ("taken", lease.queue, lease.attempts):
        return []
    return list(seen.waiters)


async def stats_of(store: Store, queue: str = Q) -> QueueStats:
    """The counts of a queue; zeros where it was never used."""
    return (await store.stats()).queues.get(queue, QueueStats())


async def taken(store: Store, count: int = 1) -> list[Job]:
    """New jobs that were taken for an hour."""
    await add(store, *(NewJob(Q, str(n).encode()) for n in range(count)))
    jobs = await store.take(Q, count, lease=HOUR)
    assert len(jobs) == count
    return jobs


def lost(*leases: Lease) -> list[Refused]:
    return [Refused(lease, "lost") for lease in leases]


async def finish(store: Store, job: Job) -> None:
    assert await store.settle([Done(job.lease)]) == []


async def one_in_each(store: Store) -> dict[State, int]:
    """A job in each state, in the queue Q."""
    done = await add_one(store, NewJob(Q, b"done", keep_for=HOUR))
    await finish(store, await take_one(store))
    dead = await bury_one(store, NewJob(Q, b"dead"))
    taken = await add_one(store, NewJob(Q, b"taken"))
    await take_one(store, lease=HOUR)
    cancelled = await add_one(store, NewJob(Q, b"cancelled", keep_for=HOUR))
    assert await store.change([Cancel(cancelled)]) == 1
    await store.set_lanes(Q, Lanes(limits={"full": 0}))
    ready, delayed, held = await add(
        store, NewJob(Q, b"ready"), NewJob(Q, b"delayed", delay=HOUR), NewJob(Q, b"held", lane="full")
    )
    ended: dict[State, int] = {"done": done, "dead": dead, "cancelled": cancelled}
    return {**ended, "taken": taken, "ready": ready, "delayed": delayed, "held": held}


async def bury_one(store: Store, new: NewJob, reason: str = "broken") -> int:
    """A dead job."""
    id = await add_one(store, new)
    job = await take_one(store, new.queue)
    assert job.id == id
    assert await store.settle([Bury(job.lease, reason)]) == []
    return id


async def begin_wait(store: Store, *queues: str, timeout: float = HOUR) -> asyncio.Task[bool]:
    """A `wait` that has come to its sleep."""
    task = asyncio.create_task(store.wait(queues, timeout))
    await let_run(store)
    assert not task.done(), f"wait answered {task.result()} at once"
    return task


async def let_run(store: Store) -> None:
    """Give whatever goes on in the background the time to get as far as it can.

    No sleep of a guessed length: a storage answers the calls of a handle in turn, so a few questions are answered only
    after the earlier call has looked at the store.
    """
    for _ in range(5):
        await store.stats()
        for _ in range(5):
            await asyncio.sleep(0)
