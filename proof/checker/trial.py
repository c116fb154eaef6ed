"""A seeded trial of the checker: producers, workers and an administrator use a store, and the calls are checked.

`judge` does it on a fake store in virtual time. The clients themselves serve any store: `Pace` says how they wait.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from accoda.errors import StorageUnavailable, VersionConflict
from accoda.model import (
    Bury,
    ById,
    ByKey,
    Cancel,
    Change,
    Done,
    Job,
    Lanes,
    NewJob,
    NotCrashed,
    OnDuplicate,
    Outcome,
    Remove,
    Rerank,
    Retry,
    Revive,
    StartNow,
    State,
)
from accoda.storage.protocol import Store
from accoda.testing.reference import Reference
from proof.checker.call_log import CallLog
from proof.checker.checking import Verdict, check
from proof.checker.fake_store import FakeStore, Sleep, VirtualLoop, now_or_never
from proof.checker.final import final_state
from proof.checker.recorder import Recorder, record
from proof.checker.rules import Options
from proof.checker.sinks import MemorySink

QUEUES = ("a", "b", "b", "c")
RULED = ("b", "c")
LANES = (None, "x", "y", None, "x")
LEASE = 2.0
Run = Callable[["Client", Job], None]


class Pace(Struct, frozen=True):
    """How time passes for the clients: what they wait with, what moment it is, and how long a second is to them."""

    rest: Callable[[float], Awaitable[None]] = Sleep
    moment: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    scale: float = 1.0


class Client:
    """One client: its name, its random choices, its recorded store."""

    def __init__(self, recorder: Recorder, store: Store, pace: Pace, seed: float) -> None:
        self.name = recorder.client
        self.recorder = recorder
        self.store = record(store, recorder)
        self.pace = pace
        self.random = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    async def rest(self, seconds: float) -> None:
        """Up to so long."""
        await self.pace.rest(self.random.random() * seconds * self.pace.scale)

    def seconds(self, *choices: float) -> float:
        return self.random.choice(choices) * self.pace.scale

    def moment(self, *choices: float) -> int:
        """So many seconds from now."""
        return self.pace.moment() + round(self.seconds(*choices) * 1000)

    def run_once(self, job: Job) -> None:
        run = {"id": job.id, "attempts": job.attempts, "taken_at": job.lease.taken_at}
        self.recorder.note("start", **run)
        self.recorder.note("end", **run)


def draw_job(client: Client, number: int) -> NewJob:
    choose = client.random
    queue, data = choose.choice(QUEUES), f"{client.name} {number}".encode()
    rank, cost = float(choose.randrange(3)), choose.randrange(4)
    kind, lane = choose.random(), LANES[number % len(LANES)]
    if kind < 0.5:
        return NewJob(queue, data, rank=rank, cost=cost, lane=lane)
    if kind < 0.65:
        return NewJob(queue, data, rank=rank, delay=client.seconds(0.5, 1.5, 4.0), lane=lane)
    if kind < 0.75:
        return NewJob(queue, data, start_at=client.moment(-0.5, 0.7, 3.0), keep_for=client.seconds(5.0), lane=lane)
    what: OnDuplicate = choose.choice(("keep", "rerank", "attach", "attach", "replace"))
    waiter = f"{client.name} waits {number}".encode() if what in ("attach", "replace") else None
    delay = client.seconds(0.3) if client.chance(0.5) else None
    key = choose.choice("klm")
    return NewJob(queue, data, rank=rank, key=key, on_duplicate=what, waiter=waiter, delay=delay, lane=lane)


async def produce(client: Client, calls: int) -> None:
    for number in range(calls):
        many = 15 if number % 20 == 0 else client.random.randint(1, 4)  # now and then a crowd, so that there is a line
        with suppress(StorageUnavailable):
            await client.store.enqueue([draw_job(client, number * 20 + k) for k in range(many)])
        await client.rest(0.5)


async def work(client: Client, calls: int, run: Run | None = None) -> None:
    for number in range(calls):
        with suppress(StorageUnavailable):
            await _work_once(client, number, run or Client.run_once)
        await client.rest(0.3)


async def _work_once(client: Client, number: int, run: Run) -> None:
    choose, store = client.random, client.store
    count, most, lease = choose.randint(1, 5), choose.choice((None, None, 3, 5)), client.seconds(LEASE)
    jobs = await store.take(choose.choice(QUEUES), count, lease=lease, max_cost=most, worker=client.name)
    if not jobs:
        return
    for job in jobs:
        run(client, job)
    await client.rest(1.0)
    if client.chance(0.2):
        await store.extend([job.lease for job in jobs], client.seconds(LEASE / 2, LEASE, LEASE * 2))
        await client.rest(LEASE)
    if client.chance(0.2):
        await client.rest(LEASE * 2)  # it may come too late
    if client.chance(0.1):
        return  # it died
    if client.chance(0.1):  # as a worker that held other jobs with these ids, before the store came back older
        await store.settle([Done(replace(job.lease, taken_at=job.lease.taken_at - 1)) for job in jobs])
    outcomes = [await _decide(client, job, number) for job in jobs]
    await store.settle(outcomes)
    if client.chance(0.2):
        await store.settle(outcomes)  # as if the answer had been lost


async def _decide(client: Client, job: Job, number: int) -> Outcome:
    kind = client.random.random()
    if kind < 0.15:
        return Retry(job.lease, client.seconds(0.0, 0.5, 3.0), counts=client.chance(0.7))
    if kind < 0.2:
        return Retry(job.lease, at=client.moment(0.0, 1.5))
    then = [NewJob(client.random.choice(QUEUES), f"{client.name} then {number}".encode())]
    if kind < 0.3:
        return Bury(job.lease, "no use", then if kind < 0.25 else ())
    then = then if kind < 0.45 else []
    if job.key is None:
        return Done(job.lease, then)
    seen = await client.store.look(ById(job.id), waiters_after=0)
    await client.rest(0.5)  # another may join meanwhile
    return Done(job.lease, then, waiters=len(seen.waiters))


async def administer(client: Client, calls: int) -> None:
    """An administrator looks at jobs, removes, cancels, revives and starts some, moves others, and pauses queues."""
    for _ in range(calls):
        with suppress(StorageUnavailable, VersionConflict):
            await _administer_once(client)
        await client.rest(0.8)


async def _administer_once(client: Client) -> None:
    choose, store = client.random, client.store
    queue = choose.choice(QUEUES)
    state: State = choose.choice(("ready", "delayed", "taken", "dead", "dead"))
    seen = await store.browse(queue, state)
    ids = [info.id for info in choose.sample(seen, min(2, len(seen)))]
    kind = choose.random()
    if kind < 0.6:
        await store.change(await _changes(client, queue, ids, kind))
    elif kind < 0.65:
        await store.pause(queue, None)
        await client.rest(1.0)
        await store.pause(queue, 0)
    elif kind < 0.7:
        await store.purge(queue, "dead", limit=1)
    elif kind < 0.85:
        found = await store.read("lock")
        await store.write("lock", b"", version=found.version if found else 0)
    elif kind < 0.95:
        await _leave(client, queue)
    elif kind < 0.98:  # not all queues, so that one goes strictly by rank
        await store.set_lanes(choose.choice(RULED), _draw_rules(client))
    else:
        for id in ids:
            await store.look(ById(id), ahead=True)


def _draw_rules(client: Client) -> Lanes | None:
    choose = client.random.choice
    return choose(
        (
            None,
            Lanes(
                choose((1, 2, 4)),
                {"x": choose((0, 1, None))},
                True,
                total=choose((None, 2, 5)),
                shared=choose((None, "s", "s")),
            ),
        )
    )


async def _changes(client: Client, queue: str, ids: list[int], kind: float) -> list[Change]:
    if kind < 0.3:
        return [Revive(id) for id in ids]
    if kind < 0.35:
        return [Remove(id) for id in ids]
    if kind < 0.4:
        return [Cancel(id) for id in ids]
    if kind < 0.43:
        return [NotCrashed(id) for id in ids]
    if kind < 0.5:
        delayed = await client.store.browse(queue, "delayed")
        return [StartNow(info.id) for info in client.random.sample(delayed, min(2, len(delayed)))]
    return [Rerank(id, float(client.random.randrange(3)), queue=queue) for id in ids]


async def _leave(client: Client, queue: str) -> None:
    """The last waiter of a job goes away: its job is removed, unless another joins meanwhile."""
    after = client.random.choice((None, 0, 1))
    found = await client.store.look(ByKey(queue, client.random.choice("klm")), waiters_after=after)
    if found.job is not None:
        await client.rest(2.0)
        await client.store.change([Remove(found.job.id, found.job.waiters, queue)])


class Plan(Struct, frozen=True):
    """A trial on a fake store.

    `loss` is the share of calls that fail, `again` that of takes that are sent twice, `kills` how often each worker is
    killed, `calls` how many each client makes, `run` what a worker does with a job, if not simply one run.
    """

    seed: int
    model: Callable[[int], Reference] = Reference
    loss: float = 0.0
    kills: int = 0
    calls: int = 60
    run: Run | None = None
    again: float = 0.0
    store: type[FakeStore] = FakeStore


class Trial:
    """Clients that use a fake store."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = VirtualLoop(plan.seed)
        self.store = plan.store(self.loop, plan.model, plan.loss, plan.again)
        self.sink = MemorySink()

    def client(self, name: str) -> Client:
        pace = Pace(moment=lambda: self.loop.moment)
        return Client(
            Recorder(name, self.sink, self.loop.now), cast(Store, self.store), pace, self.loop.random.random()
        )

    def play(self) -> CallLog:
        """Run until all clients are done."""
        for name, live in (("p1", produce), ("p2", produce), ("admin", administer)):
            self.loop.start(live(self.client(name), self.plan.calls))
        for number in range(3):
            self.loop.start(self._worker_with_kills(f"w{number}"))
        self.loop.run()
        self.store.slow = False
        return CallLog.of(self.sink)

    async def _worker_with_kills(self, name: str) -> None:
        """A worker that is killed now and then, and begins again under another name."""
        for life in range(self.plan.kills + 1):
            client = self.client(f"{name}.{life}")
            working = work(client, self.plan.calls // (self.plan.kills + 1), self.plan.run)
            await (working if life == self.plan.kills else self._until_killed(client, working))

    async def _until_killed(self, client: Client, working: Coroutine[Any, None, None]) -> None:
        for _ in range(client.random.randrange(40, 160)):
            try:
                seconds = working.send(None)
            except StopIteration:
                return
            await Sleep(float(seconds))
        client.recorder.sink = MemorySink()  # a killed process writes nothing more
        working.close()
        Recorder("reaper", self.sink, self.loop.now).note("kill", client=client.name)


def judge(plan: Plan, options: Options | None = None) -> Verdict:
    """Run, and hold the calls against all rules."""
    trial = Trial(plan)
    log = trial.play()
    return check(log, now_or_never(final_state(cast(Store, trial.store))), options=options)
