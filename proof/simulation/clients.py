"""The other processes: producers, bare consumers of the store, and an administrator."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from accoda.errors import StorageError
from accoda.model import (
    Bury,
    ById,
    Cancel,
    Done,
    Job,
    Lanes,
    NewJob,
    Outcome,
    Remove,
    Rerank,
    Retry,
    Revive,
    StartNow,
    State,
)
from accoda.payload import encode
from accoda.storage.protocol import Store
from proof.simulation.workload import HANDLED, PAYLOADS, POISON, RAW

if TYPE_CHECKING:
    from proof.simulation.process import Process

_WEIGHTS = {"mail": 10, "bulk": 14, "slow": 1, "unique": 2, "chain": 2, "deals": 3, "costly": 3}
_QUEUES = [queue for queue, weight in _WEIGHTS.items() for _ in range(weight)]
_KEYED = {"unique", "deals"}
RULED = ("mail", "bulk", "unique", "costly")
"""The queues that have rules for lanes."""
_LANES = (None, None, *(f"c{number}" for number in range(8)))
_BUSY = "c0"
"""The lane that most jobs of a call have."""


async def produce(process: Process) -> None:
    """Enqueue until all jobs of the plan are asked for. What failed is asked for again half of the time."""
    cluster = process.cluster
    random = cluster.stream(process.name)
    while cluster.jobs_left > 0:
        store = await _connected(process)
        size = min(random.choice((1, 1, 5, 20, 100)), cluster.jobs_left)
        cluster.jobs_left -= size
        jobs = _draft(cluster.mix.keyed, size, random, "poison" in cluster.mix.faults)
        while True:
            try:
                await store.enqueue(jobs)
                break
            except StorageError:
                await asyncio.sleep(random.random())
                if random.random() < 0.5:
                    break
        pace = size * cluster.producers * cluster.mix.span / cluster.plan.jobs
        await asyncio.sleep(min(random.expovariate(1.0) * pace, 5.0))


def _draft(keyed: float, size: int, random: Random, poison: bool) -> list[NewJob]:
    queue = random.choice(_QUEUES)
    delay = random.random() * 3.0 if random.random() < 0.1 else None
    if queue in _KEYED or (queue != "slow" and random.random() < keyed):
        return [_keyed(queue, random, delay) for _ in range(min(size, 10))]
    lanes = [_lane(random) for _ in range(size)] if queue in RULED else [None] * size
    if queue == "costly":
        return [
            NewJob(queue, b"", cost=random.randrange(10), rank=float(random.randrange(3)), lane=lane) for lane in lanes
        ]
    if poison and queue in ("mail", "bulk", "chain") and random.random() < 0.02:
        return [NewJob(queue, encode(POISON), lane=lanes[0])]
    rank = float(random.randrange(4))
    at = random.randrange(len(PAYLOADS))
    return [NewJob(queue, PAYLOADS[(at + n) % 1024], rank=rank, delay=delay, lane=lanes[n]) for n in range(size)]


def _lane(random: Random) -> str | None:
    return _BUSY if random.random() < 0.5 else random.choice(_LANES)


def _keyed(queue: str, random: Random, delay: float | None) -> NewJob:
    shared = queue == "deals"  # few keys, which many want
    key = f"k{random.randrange(10 if shared else 40)}"
    how = random.choice(
        ("attach", "attach", "attach", "replace") if shared else ("keep", "rerank", "replace", "attach")
    )
    waiter = b"%d" % random.randrange(1 << 40) if how == "attach" or shared else None
    number = PAYLOADS[random.randrange(1024)]
    cost = random.randrange(10) if queue == "costly" else 0
    lane = _lane(random) if queue in RULED else None
    return NewJob(queue, number, key=key, on_duplicate=how, waiter=waiter, delay=delay, cost=cost, lane=lane)  # type: ignore[arg-type]


async def serve_deals(process: Process) -> None:
    """Serve "deals" as a shared fetch does: one delivery for each waiter, also for those that joined meanwhile."""
    random = process.cluster.stream(process.name)
    while not process.cluster.closing:
        try:
            store = await _connected(process)
            jobs = await store.take("deals", 10, lease=2.0, worker=process.name)
            if jobs:
                await _serve(store, jobs, random.random() * 1.5 if random.random() < 0.5 else 0.0)
            else:
                await store.wait(["deals"], 5.0)
        except StorageError:
            await asyncio.sleep(random.random())


async def _serve(store: Store, jobs: list[Job], fetching: float) -> None:
    left = {job.id: job for job in jobs}
    while left:  # each round sees all waiters that joined before it; one that joins meanwhile makes another
        outcomes: list[Outcome] = []
        for job in left.values():
            waiters = (await store.look(ById(job.id), waiters_after=0)).waiters
            then = tuple([NewJob("deals.deliver", encode(int(waiter))) for waiter in waiters])
            outcomes.append(Done(job.lease, then, None, len(waiters)))
        if fetching:
            await asyncio.sleep(fetching)  # others join meanwhile
        refused = await store.settle(outcomes)
        left = {refusal.lease.id: left[refusal.lease.id] for refusal in refused if refusal.why == "grown"}


async def serve_costly(process: Process) -> None:
    """Serve "costly" within a cost that changes, and give some of it back."""
    random = process.cluster.stream(process.name)
    while not process.cluster.closing:
        try:
            store = await _connected(process)
            jobs = await store.take("costly", 20, lease=2.0, max_cost=random.randrange(10, 60), worker=process.name)
            if jobs:
                if random.random() < 0.1:
                    await asyncio.sleep(random.random() * 3.0)
                await store.settle([_outcome(job, random, process.cluster.calm) for job in jobs])
            else:
                await store.wait(["costly"], 5.0)
        except StorageError:
            await asyncio.sleep(random.random())


def _outcome(job: Job, random: Random, calm: bool) -> Outcome:
    chance = 1.0 if calm else random.random()
    if chance < 0.1:
        return Retry(job.lease, delay=random.random(), counts=random.random() < 0.5)
    if chance < 0.13:  # what follows joins a shared fetch, and another stands in line for the one that is buried
        key, waiter = f"k{random.randrange(10)}", b"%d" % random.randrange(1 << 40)
        wish = NewJob("deals", PAYLOADS[random.randrange(1024)], key=key, on_duplicate="attach", waiter=waiter)
        return Bury(job.lease, "no use", [wish, NewJob("costly", PAYLOADS[random.randrange(1024)])])
    return Done(job.lease)


async def change_rules(process: Process) -> None:
    """Give queues rules for their lanes, other ones now and then, or none for a while."""
    cluster = process.cluster
    random = cluster.stream(process.name)
    while not cluster.calm:
        with suppress(StorageError):
            await (await _connected(process)).set_lanes(random.choice(RULED), _draw_rules(random))
        await asyncio.sleep(random.expovariate(0.5))


def _draw_rules(random: Random) -> Lanes | None:
    """Now and then a lane that may have nothing, or a queue that may run nothing: both are over when all is calm."""
    if random.random() < 0.1:
        return None
    return Lanes(
        limit=random.choice((None, 1, 2, 5, 20)),
        limits=random.choice(({}, {_BUSY: 1}, {_BUSY: 0}, {"c1": None})),
        fair=random.random() < 0.7,
        weights=random.choice(({}, {_BUSY: 0.5, "c2": 3})),
        by_cost=random.random() < 0.3,
        total=random.choice((None, None, 0, 2, 10)),
        shared=random.choice((None, "calls")),
    )


CALM_RULES = Lanes(limit=4, fair=True, total=20, shared="calls")
"""So that all is done in the end though there are rules."""


async def administer(process: Process) -> None:
    """An administrator at the command line."""
    cluster = process.cluster
    random = cluster.stream(process.name)
    while True:
        await asyncio.sleep(random.expovariate(1.0))
        if cluster.calm:
            return
        with suppress(StorageError):
            await _act(await _connected(process), random, cluster.server.clock.now())


async def _act(store: Store, random: Random, now: int) -> None:
    queue = random.choice(HANDLED + RAW)
    match random.randrange(8):
        case 0:
            await store.pause(queue, now + random.randrange(5_000) if random.random() < 0.7 else None)
        case 1 | 2:
            await store.pause(queue, 0)
        case 3:
            found = await store.browse(queue, random.choice(("ready", "held", "taken", "delayed")), limit=5)
            fence = found[0].waiters if found and random.random() < 0.5 else None
            end = random.choice((Remove, Cancel))
            await store.change([end(info.id, fence) for info in found[:1]])
        case 4:
            dead = await store.browse(queue, "dead", limit=20)
            await store.change([Revive(info.id) for info in dead])
        case 5 if random.random() < 0.6:
            delayed = await store.browse(queue, "delayed", limit=5)
            await store.change([StartNow(info.id) for info in delayed])
        case 5:
            if random.random() < 0.7:
                await store.purge(queue, random.choice(("dead", "done", "cancelled")))
        case 6:
            state: State = random.choice(("ready", "ready", "held"))
            page = await store.browse(queue, state, order=random.choice(("line", "id")), limit=10)
            await store.change([Rerank(info.id, float(random.randrange(4)), info.waiters, queue) for info in page])
        case _:
            await store.stats()
            await store.lanes(queue, limit=3)


async def _connected(process: Process) -> Store:
    """The process's store; while there is none, try again."""
    while True:
        try:
            return await process.app.connections.get()
        except StorageError:
            await asyncio.sleep(0.5)
