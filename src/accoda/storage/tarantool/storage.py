"""`Store` on a Tarantool server. Each verb is one call of one stored function, which is one transaction there.

Small calls of many tasks go together (`accoda.storage.common.call_batching`). The server carries out one call after the
other, none of them waits for another, and a call is one transaction. So these can be one call:
- enqueue: jobs of several callers are stored in one step as if one call after the other had come.
- take: from one queue, for the same worker and the same time, without `max_cost`. The first caller gets the first jobs.
- settle: outcomes without follow-ups. Follow-ups are enqueued when all outcomes of a call are applied, so those of one
  caller would find keys free that another caller's outcome has freed. Reports to flows come then, too; none is lost,
  since a flow that one of the outcomes ends is made again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec.msgpack import Decoder

from accoda.clock import Clock
from accoda.errors import StorageError, StorageFull
from accoda.model import Bury, Done, Enqueued, Job, Lease, NewJob, Outcome, Refused, Retry, What, Why, clean
from accoda.storage import checks
from accoda.storage.common.call_batching import SMALL, CallBatching
from accoda.storage.common.closing import Closing
from accoda.storage.tarantool import records
from accoda.storage.tarantool.client import Client, bytes_of
from accoda.storage.tarantool.errors import Undecodable
from accoda.storage.tarantool.inspector import TarantoolInspector
from accoda.storage.tarantool.wakeups import LongPoll

MOST_JOBS = 1_000_000  # in one take
_ALONE = SMALL + 1  # the size of a call that goes by itself
_MODES = {"keep": 0, "replace": 1, "attach": 2, "rerank": 3}
_WHAT: tuple[What, ...] = ("kept", "replaced", "attached", "kept")
_DONE, _RETRY, _BURY = 0, 1, 2

_ENQUEUED: Decoder[Any] = Decoder(tuple[tuple[int, list[tuple[int, int, int, int]]]])
_TAKEN: Decoder[Any] = Decoder(tuple[list[records.JobRow]])
_REFUSED: Decoder[Any] = Decoder(tuple[list[tuple[int, int]]])
_WHY: tuple[Why, ...] = ("lost", "grown", "cancelled")

Row = tuple[Any, ...]
Taking = tuple[str, int, int | None, str]
"""The queue, the ms of the lease, max_cost, and the worker."""


class TarantoolStorage(TarantoolInspector, Closing):
    """Safe to share between threads and event loops, as long as the loop that opened it runs.

    When an answer is lost with its connection, the call is sent again. Verbs that go by `once` (enqueue, take, settle,
    write, change, purge) carry a receipt, by which the server gives the first answer again. The others only read, or
    set something to a value (extend, pause): twice is as once.
    """

    def __init__(self, client: Client, clock: Clock | None) -> None:
        self._client = client
        self._wakeups = LongPoll(client, clock)
        home = client.home
        self._enqueues: CallBatching[None, Sequence[NewJob], list[Enqueued]] = CallBatching(self._enqueue, home=home)
        self._takes: CallBatching[Taking, int, list[Job]] = CallBatching(self._take, self._give_back, home)
        self._settles: CallBatching[None, Sequence[Outcome], list[Refused]] = CallBatching(self._settle, home=home)
        self._giving_back: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        await self._client.close()
        self._wakeups.wake()  # every `wait` finds it closed

    # -- enqueue

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if type(jobs) is not list or len(jobs) != 1 or type(jobs[0]) is not NewJob:  # one job checked itself
            checks.check_jobs(jobs)
        return await self._enqueues.call(None, jobs, len(jobs))

    async def _enqueue(self, _: None, calls: list[Sequence[NewJob]]) -> list[list[Enqueued]]:
        jobs = [job for call in calls for job in call]
        names: dict[str, int] = {}
        rows = _rows_of_jobs(names, jobs)
        first, joined = await self._client.once("enqueue", (list(names), rows), _ENQUEUED)
        others = {position: Enqueued(id, _WHAT[mode], waiters) for position, id, mode, waiters in joined}
        answers: list[Enqueued] = []
        for position, job in enumerate(jobs, 1):
            answer = others.get(position) if others else None
            if answer is None:  # created: such jobs got the next ids
                answer = Enqueued(first, "created", 0 if job.waiter is None else 1)
                first += 1
            answers.append(answer)
        return _shares(answers, [len(call) for call in calls])

    # -- take

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        checks.check_take(queue, count, lease, max_cost)
        taking = queue, round(lease * 1000), max_cost, clean(worker)
        return await self._takes.call(taking, count, count if max_cost is None else _ALONE)

    async def _take(self, taking: Taking, counts: list[int]) -> list[list[Job]]:
        queue, *rest = taking
        count = min(sum(counts), MOST_JOBS)
        bad: list[tuple[int, int, int]] = []
        while True:
            try:
                rows = await self._client.once("take", (queue, count, *rest), _TAKEN)
                break
            except Undecodable as error:
                rows, bad = records.undecodable(error.answer)
                break
            except StorageFull:
                if count <= 1:
                    raise
                count //= 2  # fewer may fit, and when they are done there is more memory
        jobs = []
        for row in rows:
            try:
                data = bytes_of(row.data)
            except ValueError:
                bad.append((row.id, row.attempts, row.taken_at or 0))
                continue
            jobs.append(Job(
                row.id, queue, data, row.rank, row.cost, row.key, row.attempts, row.created_at, row.start_time,
                row.prev_start_time, row.waiters, Lease(queue, row.id, row.attempts, row.taken_at or 0), row.tries,
                row.crashes, row.lane,
            ))  # fmt: skip
        if bad:
            buried = [(1, *token, _BURY, records.UNREADABLE) for token in bad]
            await self._client.once("settle", ([queue], buried, []), _REFUSED)
        return _shares(jobs, counts)

    def _give_back(self, taking: Taking, jobs: list[Job]) -> None:
        """A take was cancelled, and then its answer came: no caller is left to run these jobs."""
        if jobs and not self._client.home.closed:
            task = asyncio.get_running_loop().create_task(self._return(jobs))
            self._giving_back.add(task)  # so that it is not garbage-collected while it runs
            task.add_done_callback(self._giving_back.discard)

    async def _return(self, jobs: list[Job]) -> None:
        with contextlib.suppress(StorageError):  # they come back when their lease ends
            await self.settle([Retry(job.lease, reason="its take was cancelled", counts=False) for job in jobs])

    # -- settle, extend, wait

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        checks.check_outcomes(outcomes)
        alone = any(outcome.then for outcome in outcomes)
        return await self._settles.call(None, outcomes, _ALONE if alone else len(outcomes))

    async def _settle(self, _: None, calls: list[Sequence[Outcome]]) -> list[list[Refused]]:
        names: dict[str, int] = {}
        rows: list[Row] = []
        then: list[Row] = []
        for outcome in (outcome for call in calls for outcome in call):
            rows.append(_row_of_outcome(names, outcome))
            if jobs := outcome.then:
                then.append((len(rows), _rows_of_jobs(names, jobs)))
        answer = await self._client.once("settle", (list(names), rows, then), _REFUSED)
        if not answer:
            return [[] for _ in calls]
        whys = dict(answer)
        refused: list[list[Refused]] = []
        position = 0
        for call in calls:
            refused.append([])
            for outcome in call:
                position += 1
                if position in whys:
                    refused[-1].append(Refused(outcome.lease, _WHY[whys[position]]))
        return refused

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        checks.check_leases(leases, lease)
        names: dict[str, int] = {}
        rows = [(_place(names, held.queue), held.id, held.attempts, held.taken_at) for held in leases]
        refused = await self._call("extend", (list(names), rows, round(lease * 1000)), _REFUSED)
        return [Refused(leases[position - 1], _WHY[why]) for position, why in refused]

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        checks.check_wait(queues, timeout)
        return await self._client.home.run(self._wakeups.wait_for(queues, timeout))


def _place(names: dict[str, int], name: str) -> int:
    """The queues that a call names are sent once; rows hold their positions."""
    return names.setdefault(name, len(names) + 1)


def _rows_of_jobs(names: dict[str, int], jobs: Iterable[NewJob]) -> list[Row]:
    rows: list[Row] = []
    for job in jobs:
        row: Row = (_place(names, job.queue), job.data, float(job.rank))
        if (
            job.key is not None or job.delay is not None or job.start_at is not None or job.cost or job.keep_for
            or job.lane is not None
        ):  # fmt: skip
            delay = None if job.delay is None else round(job.delay * 1000)
            mode = _MODES[job.on_duplicate]
            row += (job.cost, delay, job.start_at, job.keep_for, job.key, mode, job.waiter, job.reports_to, job.lane)
        rows.append(row)
    return rows


def _row_of_outcome(names: dict[str, int], outcome: Outcome) -> Row:
    lease = outcome.lease
    head = (_place(names, lease.queue), lease.id, lease.attempts, lease.taken_at)
    match outcome:
        case Done(waiters=None, result=None):
            return head
        case Done():
            return (*head, _DONE, outcome.waiters, outcome.result)
        case Retry():
            rank = None if outcome.rank is None else float(outcome.rank)
            delay = round(outcome.delay * 1000)
            return (*head, _RETRY, delay, outcome.at, clean(outcome.reason), rank, outcome.counts)
        case Bury():
            return (*head, _BURY, clean(outcome.reason))


def _shares(items: Iterable[Any], sizes: Iterable[int]) -> list[list[Any]]:
    """The items in slices of these sizes; the last ones may be short."""
    rest = iter(items)
    return [list(islice(rest, size)) for size in sizes]
