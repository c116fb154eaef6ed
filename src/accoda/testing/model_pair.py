"""A storage and the model side by side: one call goes to both, and the answers and all that can be seen must agree.

After each call, what the call changed in the model is compared, and all counts and documents: most calls change a job
or two, and asking for everything each time would take most of a run. Everything is compared after every few calls, and
in the end.

Calls and answers are in the model's ids, and so are reports. A storage may skip ids: they need only be unique and grow,
so the n-th job that one has created is the n-th of the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from accoda.errors import AccodaError
from accoda.model import (
    STATES,
    ById,
    Change,
    Cursor,
    Enqueued,
    Head,
    Job,
    JobInfo,
    Lanes,
    Lease,
    Look,
    NewJob,
    Order,
    Outcome,
    QueueStats,
    Refused,
    Report,
    State,
    Stats,
    Target,
)
from accoda.testing.commands import QUEUES
from accoda.testing.reference import Reference
from accoda.testing.store_fixture import StoreFixture

T = TypeVar("T")
Info = TypeVar("Info", JobInfo, JobInfo | None)
UNKNOWN = 10**9  # an id that no store reaches in a test
MANY = 1_000_000
PLACES = [(queue, state) for queue in QUEUES for state in STATES]
EVERYTHING_EVERY = 4  # calls


class Pair:
    """Owns an event loop, a fixture, a store of it, and the model."""

    def __init__(self, context: AbstractAsyncContextManager[StoreFixture]) -> None:
        self._loop = asyncio.new_event_loop()
        self._context = context
        self.fixture = self._run(context.__aenter__())
        assert self.fixture.exact, "moments are compared to the millisecond: the fixture must be exact"
        self.store = self._run(self.fixture.open())
        self.model = Reference(self._run(self.fixture.now()))
        self._model_ids: dict[int, int] = {}
        self._real_ids: dict[int, int] = {}
        self._pages: dict[tuple[str, State], list[JobInfo]] = {}  # of the model, when they were last compared
        self._jobs: dict[int, tuple[JobInfo | None, tuple[bytes, ...]]] = {}  # with their waiters
        self._calls = 0
        self._agree = True

    def close(self) -> None:
        try:
            if self._agree:
                self._run(self._compare(everything=True))
        finally:
            self._close()

    def _close(self) -> None:
        self._run(self.store.close())
        self._run(self._context.__aexit__(None, None, None))
        self._run(self._loop.shutdown_asyncgens())
        self._run(self._loop.shutdown_default_executor())
        self._loop.close()

    # The verbs

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        self._both(self.store.enqueue(jobs), lambda: self.model.enqueue(jobs))

    def take(self, queue: str, count: int, lease: float, max_cost: int | None, worker: str) -> list[Job]:
        return self._both(
            self.store.take(queue, count, lease=lease, max_cost=max_cost, worker=worker),
            lambda: self.model.take(queue, count, lease=lease, max_cost=max_cost, worker=worker),
        )

    def settle(self, outcomes: Sequence[Outcome]) -> None:
        real = [replace(outcome, lease=self._real_lease(outcome.lease)) for outcome in outcomes]
        self._both(self.store.settle(real), lambda: self.model.settle(outcomes))

    def extend(self, leases: Sequence[Lease], length: float) -> None:
        real = [self._real_lease(lease) for lease in leases]
        self._both(self.store.extend(real, length), lambda: self.model.extend(leases, length))

    def look(self, target: Target, waiters_after: int | None = None, ahead: bool = False) -> None:
        real = ById(self._real(target.id)) if isinstance(target, ById) else target
        self._both(
            self.store.look(real, waiters_after=waiters_after, ahead=ahead),
            lambda: self._masked_look(target, waiters_after, ahead),
        )

    def _masked_look(self, target: Target, waiters_after: int | None, ahead: bool) -> Look:
        seen = self.model.look(target, waiters_after=waiters_after, ahead=ahead)
        return replace(seen, job=_masked(seen.job))

    def change(self, changes: Sequence[Change]) -> None:
        real = [replace(change, id=self._real(change.id)) for change in changes]
        self._both(self.store.change(real), lambda: self.model.change(changes))

    def wait(self, queues: Sequence[str]) -> None:
        self._both(self.store.wait(queues, 0), lambda: self.model.wait(queues))

    def advance(self, milliseconds: int) -> None:
        self._both(self._advance(milliseconds), lambda: self.model.advance(milliseconds))

    async def _advance(self, milliseconds: int) -> None:
        """What is due is applied queue by queue, as the model does it: queues may share limits."""
        await self.fixture.advance(milliseconds / 1000)
        for queue in sorted(self.model.queues):
            await self.store.look(Head(queue))

    def pause(self, queue: str, until: int | None) -> None:
        self._both(self.store.pause(queue, until), lambda: self.model.pause(queue, until))

    def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        self._both(self.store.set_lanes(queue, rules), lambda: self.model.set_lanes(queue, rules))

    def lanes(self, queue: str, limit: int) -> None:
        self._both(self.store.lanes(queue, limit=limit), lambda: self.model.lanes(queue, limit=limit))

    def purge(self, queue: str, state: State, before: int | None, limit: int | None) -> None:
        self._both(
            self.store.purge(queue, state, before=before, limit=limit),
            lambda: self.model.purge(queue, state, before=before, limit=limit),
        )

    def browse(self, queue: str, state: State, order: Order, after: Cursor | None, limit: int) -> None:
        real = None if after is None else Cursor(after.sort, self._real(after.id))
        self._both(
            self.store.browse(queue, state, order=order, after=real, limit=limit),
            lambda: list(map(_masked, self.model.browse(queue, state, order=order, after=after, limit=limit))),
        )

    def write(self, name: str, value: bytes, version: int | None, ttl: float | None) -> None:
        self._both(
            self.store.write(name, value, version=version, ttl=ttl),
            lambda: self.model.write(name, value, version=version, ttl=ttl),
        )
        assert self._run(self.store.read(name)) == self.model.read(name)

    def documents(self, prefix: str) -> None:
        self._both(self.store.documents(prefix), lambda: self.model.documents(prefix))

    # How both are compared

    def _run(self, call: Awaitable[T]) -> T:
        return self._loop.run_until_complete(_limited(call))

    def _both(self, call: Awaitable[T], expect: Callable[[], T]) -> T:
        """Give the command to both; compare what can be seen, then the answers."""
        self._agree = False
        answer = _answer(lambda: self._run(call))
        expected = _answer(expect)
        self._calls += 1
        self._run(self._compare(everything=self._calls % EVERYTHING_EVERY == 0))  # first: it pairs the ids of new jobs
        answer = self._in_model_ids(answer)
        assert answer == expected
        self._agree = True
        return answer

    async def _compare(self, *, everything: bool) -> None:
        pages = {place: list(map(_masked, self.model.browse(*place))) for place in PLACES}
        places = [place for place in PLACES if everything or pages[place] != self._pages.get(place, [])]
        seen = {place: await self.store.browse(*place, limit=MANY) for place in places}
        self._match_ids({info.id: queue for (queue, _), page in seen.items() for info in page})
        for place in places:
            assert self._in_model_ids(seen[place]) == pages[place], place
        jobs = {id: _seen(self._masked_look(ById(id), 0, ahead=False)) for id in self._real_ids}
        for id, job in jobs.items():
            if everything or job != self._jobs.get(id):
                look = await self.store.look(ById(self._real_ids[id]), waiters_after=0)
                assert _seen(self._in_model_ids(look)) == job
        assert _used(await self.store.stats()) == _used(self.model.stats())
        assert await self.store.documents("") == self.model.documents("")
        self._pages, self._jobs = pages, jobs

    def _match_ids(self, seen: dict[int, str]) -> None:
        """Pair the ids that are new on either side: both grow, so the lowest belong together. `seen` has the queues."""
        new = sorted((self._count_of(queue), id) for id, queue in seen.items() if id not in self._model_ids)
        jobs = self.model.jobs.items()
        mine = sorted((self._count_of(job.new.queue), id) for id, job in jobs if id not in self._real_ids)
        assert len(new) == len(mine), f"the storage has {len(new)} new jobs, the model {len(mine)}"
        last = max(self._model_ids, default=0)
        assert all(id > last for _, id in new), "a new id is not above the older ones"
        for (_, real), (_, id) in zip(new, mine, strict=True):
            self._model_ids[real], self._real_ids[id] = id, real

    def _count_of(self, queue: str) -> str:
        """Whose ids this queue's are. In a Redis Cluster each family counts for itself, so what one call creates in
        several of them may have its ids in another order; else they are the store's."""
        return queue.partition(".")[0] if self.fixture.url.startswith("redis+cluster:") else ""

    def _real(self, id: int) -> int:
        return self._real_ids.get(id, UNKNOWN + id)

    def _real_lease(self, lease: Lease) -> Lease:
        return replace(lease, id=self._real(lease.id))

    def _mine(self, id: int) -> int:
        return self._model_ids.get(id, id - UNKNOWN)

    def _in_model_ids(self, answer: Any) -> Any:
        match answer:
            case list():
                return [self._in_model_ids(each) for each in answer]
            case Enqueued():
                return replace(answer, id=self._mine(answer.id))
            case Lease():
                return replace(answer, id=self._mine(answer.id))
            case Refused():
                return replace(answer, lease=self._in_model_ids(answer.lease))
            case Job():
                return replace(answer, id=self._mine(answer.id), lease=self._in_model_ids(answer.lease))
            case Look():
                waiters = tuple(map(self._waiter_in_model_ids, answer.waiters))
                return replace(answer, job=self._in_model_ids(answer.job), waiters=waiters)
            case JobInfo():
                return _masked(replace(answer, id=self._mine(answer.id)))
        return answer

    def _waiter_in_model_ids(self, waiter: bytes) -> bytes:
        try:
            report = Report.read(waiter)
        except ValueError:  # one that was enqueued
            return waiter
        return replace(report, id=self._mine(report.id)).wire()


async def _limited(call: Awaitable[T]) -> T:
    async with asyncio.timeout(10):
        return await call


def _answer(call: Callable[[], T]) -> T:
    """What a call gives; an error raised on purpose is an answer too, and compared by its fields."""
    try:
        return call()
    except AccodaError as error:
        return cast(T, (type(error), vars(error)))


def _seen(look: Look) -> tuple[JobInfo | None, tuple[bytes, ...]]:
    return look.job, look.waiters


def _masked(info: Info) -> Info:
    """Without what a storage may tell as it likes: the last worker of a job that is not taken, an empty reason."""
    if info is None:
        return info
    taken = info.state == "taken"
    return replace(
        info,
        worker=info.worker or None if taken else None,
        taken_at=info.taken_at if taken else None,
        reason=info.reason or None,
    )


def _used(stats: Stats) -> dict[str, QueueStats]:
    """Without queues that are as if never used: whether `take` alone makes a queue known is the storage's choice."""
    return {name: each for name, each in stats.queues.items() if each != QueueStats()}
