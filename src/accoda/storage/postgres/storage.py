"""`Store` in a PostgreSQL schema. Each verb is one call of a function there: one round trip, one transaction.

Small calls of many tasks are sent together (`common/call_batching.py`). Which of them may be, and why that is safe:
- enqueue: jobs without a key. They stand for themselves, so those of several callers are stored in one step as if one
  call after the other had come. A job with a key may have to wait until a caller's own transaction ends that holds the
  key, and others must not wait with it.
- take: from one queue, for the same worker and the same time, without a budget. The first caller gets the first jobs.
- settle: outcomes without follow-ups. Each is judged by its own lease. Where a job stays locked, by a caller's own
  transaction, each call goes by itself. Reports to flows are stored after all the outcomes: none is lost, since a flow
  that one of them ends is made again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec

from accoda.clock import Clock
from accoda.errors import AccodaError, InvalidInput, VersionConflict
from accoda.model import (
    ById,
    ByKey,
    Change,
    Cursor,
    Document,
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lanes,
    LanesInfo,
    Lease,
    Look,
    NewJob,
    Order,
    Outcome,
    Refused,
    Retry,
    State,
    Stats,
    Target,
    check_document_name,
    clean,
)
from accoda.storage import checks
from accoda.storage.common.call_batching import SMALL, CallBatching
from accoda.storage.common.caller_connection import fetch_async, recognize
from accoda.storage.common.closing import Closing
from accoda.storage.common.wakeups import LOOK_EVERY, Seen
from accoda.storage.postgres import rows, vacuum
from accoda.storage.postgres.caller_transaction import enqueue_statement, enqueued, new_job_row, to_ms
from accoda.storage.postgres.client import Client
from accoda.storage.postgres.wakeups import READY, Listener
from accoda.storage.protocol import DUE_AT_ONCE

UNDO_PATIENCE = 1.0  # seconds that a cancelled take waits until its jobs are back in the line
SOON = 0.01  # seconds until a take is tried again after two that found nothing though a job was seen

T = TypeVar("T")

_ALONE = SMALL + 1
_AFTER_ALL = "\U0010ffff"  # not printable, so no name has it; in UTF-8 it sorts after every other character

Taking = tuple[str, int, int | None, str]
"""The queue, the ms of the lease, max_cost, and the worker."""


class PostgresStorage(Closing):
    """Safe to share between threads and event loops; calls are carried out in the loop in which it was opened.

    `clock` is for tests: then the server takes its moment for the present one. None: the server's own clock.

    What happens when the connection breaks before an answer came (`repeat` below):
    repeated, because twice does what once does: take (jobs that the lost answer named come back when their lease ends),
    extend, pause, set_lanes, and whatever only looks. Not repeated, but `StorageUnavailable`, because twice would be
    too much or the answer wrong: enqueue, write, change, purge; and settle, which its caller may safely repeat: "lost"
    may then mean what was applied the first time.
    """

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock
        self._wakeups = Listener(client, clock)
        self._vacuum = vacuum.Vacuum(client)
        self._settled = 0  # outcomes since it started last
        self._enqueues: CallBatching[None, Sequence[NewJob], list[Enqueued]] = CallBatching(self._enqueue_all)
        self._takes: CallBatching[Taking, int, list[Job]] = CallBatching(self._take_all, self._give_back)
        self._settles: CallBatching[None, Sequence[Outcome], list[Refused]] = CallBatching(self._settle_all)
        self._vain: dict[
            str, tuple[float, float]
        ] = {}  # since when takes of a queue find nothing, and the last of them
        self._closing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Let calls under way finish, then let go of everything. Cancelled, it lets go at once."""
        affinity = self._client.affinity
        if not affinity.reachable:
            affinity.closed = True  # a forked child leaves the connections to its parent; or their loop has ended
        elif asyncio.get_running_loop() is affinity.loop:
            await self._close()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), affinity.loop))

    async def _close(self) -> None:
        self._client.affinity.closed = True  # first, so that nothing new begins in what is closed below
        if self._closing is None:
            self._closing = asyncio.create_task(self._end())
        try:
            await asyncio.wait({self._closing})  # one end, however many callers ask for it
        except asyncio.CancelledError:
            self._closing.cancel()
            raise

    async def _end(self) -> None:
        try:
            await self._wakeups.close()
            await self._vacuum.close()
            await self._client.close()
        finally:
            self._client.hang_up()

    def _at(self) -> int | None:
        """The present moment where a test decides it; otherwise the server's clock does."""
        return None if self._clock is None else self._clock.now()

    # -- producers and workers

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Enqueued]:
        """Store all of them or none. With `connection`, in the transaction that is open there: see docs/postgres.md."""
        checks.check_jobs(jobs)
        if connection is not None:
            self._client.affinity.check()
            caller = recognize(connection)
            if caller.blocking or caller.engine != "postgresql":
                raise InvalidInput("connection", "must be an async one to PostgreSQL; app.sync.enqueue takes others")
            statement = enqueue_statement(self._client.place.schema, self._at(), jobs)
            return enqueued(await fetch_async(caller, statement))
        if not jobs:
            self._client.affinity.check()
            return []
        size = _ALONE if any(job.key is not None for job in jobs) else len(jobs)
        return await self._client.run(self._enqueues.call(None, jobs, size))

    async def _enqueue_all(self, _: None, calls: list[Sequence[NewJob]]) -> list[list[Enqueued]]:
        jobs = [job for each in calls for job in each]
        news, quiet = _news_of(jobs), self._client.is_quiet()
        args = (self._at(), [new_job_row(job) for job in jobs], False, news if quiet else [])
        (row,) = await self._client.fetch("enqueue", *args, repeat=False)
        if not quiet:
            self._client.notify(news)
        return _shares(enqueued(row), map(len, calls))

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        checks.check_take(queue, count, lease, max_cost)
        taking = queue, round(lease * 1000), max_cost, clean(worker)
        return await self._client.run(self._take(taking, count))

    async def _take(self, taking: Taking, count: int) -> list[Job]:
        try:
            return await self._takes.call(taking, count, count if taking[2] is None else _ALONE)
        except asyncio.CancelledError:
            # The server may be at it already. What it hands out goes back; a moment for that, so that the caller's next
            # call does not pass over it.
            await self._takes.finish(UNDO_PATIENCE)
            await self._client.finish(UNDO_PATIENCE)
            raise

    async def _take_all(self, taking: Taking, counts: list[int]) -> list[list[Job]]:
        queue, lease, max_cost, worker = taking
        found = await self._client.fetch("take", self._at(), queue, sum(counts), lease, max_cost, worker, repeat=True)
        if found:
            self._vain.pop(queue, None)
        else:
            now = asyncio.get_running_loop().time()
            self._vain[queue] = self._vain.get(queue, (now,))[0], now
        jobs = [
            Job(
                id, queue, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters,
                Lease(queue, id, attempts, taken_at), tries, crashes, lane,
            )
            for id, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, tries, crashes,
            taken_at, lane in found
        ]  # fmt: skip
        return _shares(jobs, counts)

    def _give_back(self, taking: Taking, jobs: list[Job]) -> None:
        async def give_back() -> None:
            # An error is dropped: the jobs then come back when their lease ends.
            with contextlib.suppress(AccodaError):
                await self._client.fetch("give_back", taking[0], ids, runs, takes, repeat=True)

        ids, runs, takes, _ = _lease_columns(sorted((job.lease for job in jobs), key=lambda lease: lease.id))
        if ids:
            self._client.beside(give_back())

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        checks.check_outcomes(outcomes)
        if not outcomes:
            self._client.affinity.check()
            return []
        size = _ALONE if any(outcome.then for outcome in outcomes) else len(outcomes)
        return await self._client.run(self._settles.call(None, outcomes, size))

    async def _settle_all(self, _: None, calls: list[Sequence[Outcome]]) -> list[list[Refused]]:
        outcomes = [outcome for each in calls for outcome in each]
        leases = [outcome.lease for outcome in outcomes]
        order = sorted(range(len(leases)), key=[lease.id for lease in leases].__getitem__)  # in which rows are locked
        thens = [(n, job) for n, outcome in enumerate(outcomes) for job in outcome.then]
        places = {n: place for place, n in enumerate(order, 1)} if thens else {}
        then_of, then_jobs = [places[n] for n, _ in thens], [new_job_row(job) for _, job in thens]
        args = (
            *_lease_columns([leases[n] for n in order]),
            _outcome_rows(outcomes, order),
            [] if order == sorted(order) else order,
            then_of,
            then_jobs,
            len(calls) > 1,
        )
        ((verdicts, woken),) = await self._client.fetch("settle", self._at(), *args, repeat=False)
        self._settled += len(outcomes)
        if self._settled >= vacuum.LOOK_EVERY:
            self._settled = 0
            self._vacuum.start()
        news = _news_of([*(job for _, job in thens), *(each for each in outcomes if type(each) is Retry)])
        self._client.notify([*news, *woken] if woken else news)
        if verdicts is None:
            return [[] for _ in calls]
        refused = {n: Refused(leases[n], rows.WHY[verdict])
                   for n, verdict in zip(order, verdicts, strict=True) if verdict}  # fmt: skip
        return [[refused[n] for n in share if n in refused] for share in _shares(range(len(leases)), map(len, calls))]

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        checks.check_leases(leases, lease)
        args = (self._at(), *_lease_columns(leases), round(lease * 1000))
        ((lost, verdicts),) = await self._client.run(self._client.fetch("extend", *args, repeat=True))
        return [Refused(leases[n - 1], rows.WHY[verdict]) for n, verdict in zip(lost or (), verdicts, strict=True)]

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        checks.check_wait(queues, timeout)

        async def look() -> Seen:
            await self._wakeups.listen()  # before the look, so that nothing falls between the two
            (found,) = await self._client.fetch("wait", self._at(), list(queues), repeat=True)
            return self._unless_in_vain(Seen(*found), queues)

        return await self._client.run(self._wakeups.wait_for_hints(queues, timeout, look))

    def _unless_in_vain(self, seen: Seen, queues: Sequence[str]) -> Seen:
        """What was seen, or a pause where takes find nothing of it: they pass over jobs that are locked.

        A lock is gone without a word. So it is tried again soon, and then after as long as it has been by now: a job is
        taken when it has waited twice as long as it was locked, and a lock that stays for hours costs little. One take
        in vain says nothing: a worker that settles the last job takes in the same moment, and finds nothing.
        """
        vain = [self._vain[queue] for queue in queues if queue in self._vain]
        if seen.takable and self._clock is None:
            now = asyncio.get_running_loop().time()
            pause = max((last + max(SOON, last - first) - now for first, last in vain if last > first), default=0.0)
            return Seen(False, due_in=min(pause * 1000, LOOK_EVERY)) if pause > 0 else seen
        for queue in queues:
            self._vain.pop(queue, None)
        return seen

    async def stats(self) -> Stats:
        return rows.stats(await self._client.run(self._client.fetch("stats", self._at(), repeat=True)))

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        found = await self._client.run(self._client.fetch("read", self._at(), name, repeat=True))
        return Document(name, *found[0]) if found else None

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        checks.check_write(name, value, version, ttl)
        args = (self._at(), name, value, version, to_ms(ttl))
        ((new, found),) = await self._client.run(self._client.fetch("write", *args, repeat=False))
        if new is None:
            raise VersionConflict(name, version or 0, found)
        return int(new)

    async def documents(self, prefix: str) -> list[Document]:
        checks.check_prefix(prefix)
        args = (self._at(), prefix, prefix + _AFTER_ALL)
        return [Document(*row) for row in await self._client.run(self._client.fetch("documents", *args, repeat=True))]

    # -- for people, demand and flows

    async def look(self, target: Target, *, waiters_after: int | None = None, ahead: bool = False) -> Look:
        checks.check_look(target, waiters_after)
        match target:
            case ById(id):
                which: tuple[int | None, str | None, str | None] = (id, None, None)
            case ByKey(queue, key):
                which = (None, queue, key)
            case _:
                which = (None, target.queue, None)
        args = (self._at(), *which, waiters_after, ahead)
        (found,) = await self._client.run(self._client.fetch("look", *args, repeat=True))
        return rows.look(found)

    async def change(self, changes: Sequence[Change]) -> int:
        checks.check_changes(changes)
        args = (self._at(), [rows.change_row(change) for change in changes])
        return int(await self._client.run(self._client.value("change", *args, repeat=False)))

    async def browse(
        self, queue: str, state: State, *, order: Order = "line", after: Cursor | None = None, limit: int = 100
    ) -> list[JobInfo]:
        checks.check_browse(queue, state, order, after, limit)
        cursor = (None, None) if after is None else (after.sort, after.id)
        args = (self._at(), queue, rows.STATE_NUMBERS[state], order == "id", *cursor, limit)
        return [rows.job_info(row) for row in await self._client.run(self._client.fetch("browse", *args, repeat=True))]

    async def pause(self, queue: str, until: int | None) -> None:
        checks.check_pause(queue, until)
        await self._client.run(self._client.fetch("pause", self._at(), queue, until, repeat=True))

    async def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        checks.check_set_lanes(queue, rules)
        text = None if rules is None else msgspec.json.encode(rules).decode()

        async def set_and_balance() -> None:
            queues = await self._client.value("set_lanes", queue, text, repeat=True)
            # All lanes are noted to be balanced: a crash from here on leaves them to whoever calls next.
            while await self._client.value("catch_up", self._at(), queues, repeat=True) >= DUE_AT_ONCE:
                pass

        await self._client.run(set_and_balance())

    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        checks.check_lanes(queue, limit)
        (found,) = await self._client.run(self._client.fetch("lanes", self._at(), queue, limit, repeat=True))
        return rows.lanes(found)

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        checks.check_purge(queue, state, before, limit)
        args = (self._at(), queue, rows.STATE_NUMBERS[state], before, limit)
        return int(await self._client.run(self._client.value("purge", *args, repeat=False)))


def _lease_columns(leases: Sequence[Lease]) -> tuple[list[int], list[int], list[int], list[str]]:
    """ids, runs, takes, queues as in verbs/settle.sql. A queue name that the server could not read is no queue's."""
    queues = [lease.queue for lease in leases]
    names = {queue: queue if queue.isprintable() else "" for queue in set(queues)}
    return (
        [lease.id for lease in leases],
        [lease.attempts for lease in leases],
        [lease.taken_at for lease in leases],
        [names[queue] for queue in queues],
    )


def _outcome_rows(outcomes: Sequence[Outcome], order: list[int]) -> list[tuple[Any, ...]]:
    """As the type `outcome` in verbs/settle.sql; nothing where each is a Done without result and waiters."""
    for outcome in outcomes:
        if type(outcome) is not Done or outcome.result is not None or outcome.waiters is not None:
            return [_outcome_row(outcomes[n]) for n in order]
    return []


def _outcome_row(outcome: Outcome) -> tuple[Any, ...]:
    match outcome:
        case Done():
            return 0, outcome.waiters, None, None, None, None, None, outcome.result
        case Retry():
            reason = clean(outcome.reason)
            return 1, None, to_ms(outcome.delay), outcome.at, outcome.rank, outcome.counts, reason, None
        case _:
            return 2, None, None, None, None, None, clean(outcome.reason), None


def _news_of(returning: Sequence[NewJob | Retry]) -> list[str]:
    """What to tell of jobs: `+queue` where one is ready now, `queue` where there is a new moment to wake at."""
    now: set[str] = set()
    later: set[str] = set()
    for job in returning:
        queue, at = (job.lease.queue, job.at) if isinstance(job, Retry) else (job.queue, job.start_at)
        (later if job.delay or at is not None else now).add(queue)
    return [*(READY + queue for queue in now), *(later - now)]


def _shares(items: Iterable[T], sizes: Iterable[int]) -> list[list[T]]:
    """The items, divided among several callers."""
    rest = iter(items)
    return [list(islice(rest, size)) for size in sizes]
