"""enqueue, take and settle as they are sent: small calls of many tasks go together (`accoda.storage.joining`).

Which calls may be put together, and why nobody can tell:
- enqueue: jobs without a key. They stand for themselves, so those of several callers are stored in one step as if one
  call after the other had come. A job with a key may have to wait until a caller's own transaction ends that holds the
  key, and others must not wait with it: such calls go alone.
- take: from one queue, for the same worker and the same time, without a budget. The first caller gets the first jobs.
  Of large ones two at a time are on their way, and the others go together behind them. Takers that are at it at the
  same time pass over each other's jobs at the head of the line, one by one, and may lock what another has just leased,
  so that its settle waits: the fewer there are, the more of the server is left for work.
- settle: a single Done without result and follow-ups. Those of jobs with a key, kept jobs and lost leases are left over
  by the joined call, which changes nothing about them, and are settled by one of their own, which may have to wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from accoda.errors import StorageError
from accoda.model import Done, Enqueued, Job, NewJob, Refused
from accoda.storage.joining import SMALL, Joining
from accoda.storage.postgres import rows
from accoda.storage.postgres.bell import Bell, news_of, news_of_one
from accoda.storage.postgres.client import Client

VAIN_FOR = 0.05  # seconds within which two takes that find nothing make the next look a careful one
TOGETHER = 200  # jobs: takes of more go alone
APART_FOR = 1.0  # seconds in which settles of a queue go alone after a joined one left something over

Taking = tuple[str, int, str]
"""The queue, the ms of the lease, and the worker."""


class _Way:
    """One of those by which large takes go."""

    def __init__(self, taking: Joining[Taking, int, list[Job]]) -> None:
        self.taking = taking
        self.callers = 0


class Calls:
    """Belongs to the client's event loop. `at` gives the present moment where a test decides it."""

    def __init__(self, client: Client, bell: Bell, at: Callable[[], int | None]) -> None:
        self._client = client
        self._bell = bell
        self.at = at
        self._storing: Joining[None, Sequence[NewJob], list[Enqueued]] = Joining(self._store, self._store_all)
        self._taking: Joining[Taking, int, list[Job]] = Joining(self._lease, self._lease_all)
        self._ways = [_Way(Joining(self._lease, self._lease_all)) for _ in range(2)]
        self._finishing: Joining[str, Done, list[Refused]] = Joining(self._finish_one, self._finish_all)
        self._apart: dict[str, float] = {}  # until when settles of a queue go alone
        self._vain: dict[str, tuple[float, float]] = {}  # the last two takes of each queue, where they found nothing

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if any(job.key is not None for job in jobs):
            return await self._store(None, jobs)
        return await self._storing.call(None, jobs, len(jobs))

    async def take(self, taking: Taking, count: int, max_cost: int | None) -> list[Job]:
        if max_cost is not None or count > TOGETHER:
            return await self._lease(taking, count, max_cost)
        if count <= SMALL:
            return await self._taking.call(taking, count, count)
        way = min(self._ways, key=lambda each: each.callers)
        way.callers += 1
        try:
            return await way.taking.call(taking, count, SMALL)
        finally:
            way.callers -= 1

    async def finish(self, outcomes: Sequence[Done]) -> list[Refused]:
        """Outcomes that are plain: see `rows.is_plain`."""
        queue = outcomes[0].lease.queue
        if len(outcomes) > 1 or (self._apart and self._apart.get(queue, 0.0) > time.monotonic()):
            return await self._finish(outcomes)
        return await self._finishing.call(queue, outcomes[0])

    def in_vain(self, queues: Sequence[str]) -> bool:
        """Whether two takes in a row of one of the queues found nothing, perhaps because its jobs are locked.

        One alone says nothing: whoever settles his last job takes in the same moment, and finds nothing.
        """
        since = time.monotonic() - VAIN_FOR
        return any(self._vain[queue][0] > since for queue in queues if queue in self._vain)

    # -- enqueue

    async def _store(self, _: None, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if len(jobs) == 1 and rows.is_ready_at_once(jobs[0]):
            return await self._store_one(jobs[0])
        news = news_of(jobs)
        with_commit = sorted(news) if self._bell.is_quiet() else []
        columns = rows.columns(jobs)
        (answer,) = await self._client.fetch("enqueue", self.at(), *columns, with_commit, repeat=False)
        self._bell.tell(news, sent=bool(with_commit))
        return rows.enqueued(*answer)

    async def _store_one(self, job: NewJob) -> list[Enqueued]:
        news, args = news_of_one(job), rows.single(job)
        if told := self._bell.is_quiet():  # who waits may well sleep: he is told as soon as can be
            ((id,),) = await self._client.fetch("enqueue_told", self.at(), *args, news, repeat=False)
        else:
            ((id,),) = await self._client.fetch("enqueue_one", self.at(), *args, repeat=False)
        self._bell.tell((news,), sent=told)
        return [Enqueued(id, "created", 0)]

    async def _store_all(self, _: None, calls: list[Sequence[NewJob]]) -> list[list[Enqueued]]:
        answers = iter(await self._store(None, [job for jobs in calls for job in jobs]))
        return [[next(answers) for _ in jobs] for jobs in calls]

    # -- take

    async def _lease(self, taking: Taking, count: int, max_cost: int | None = None) -> list[Job]:
        queue, lease, worker = taking
        args = (self.at(), queue, count, lease, max_cost, worker)
        jobs = rows.jobs_taken(queue, await self._client.fetch("take", *args, repeat=True))
        if jobs:
            self._vain.pop(queue, None)
        else:
            self._vain[queue] = (self._vain.get(queue, (0.0, 0.0))[1], time.monotonic())
        return jobs

    async def _lease_all(self, taking: Taking, counts: list[int]) -> list[list[Job]]:
        jobs = await self._lease(taking, sum(counts))
        shares, start = [], 0
        for count in counts:
            shares.append(jobs[start : start + count])
            start += count
        return shares

    # -- settle

    async def _finish_one(self, _: str, outcome: Done) -> list[Refused]:
        return await self._finish((outcome,))

    async def _finish(self, outcomes: Sequence[Done]) -> list[Refused]:
        ordered = sorted(outcomes, key=lambda outcome: outcome.lease.id)  # the order in which rows are locked
        ids, tokens, queues = rows.lease_columns(outcome.lease for outcome in ordered)
        seen = [rows.counted(outcome.waiters) for outcome in ordered]
        verdicts = await self._client.value("finish", self.at(), queues[0], ids, tokens, seen, repeat=False)
        if verdicts is None:
            return []
        by_id = {outcome.lease.id: verdict for outcome, verdict in zip(ordered, verdicts, strict=True)}
        return rows.refused(outcomes, [by_id[outcome.lease.id] for outcome in outcomes])

    async def _finish_all(self, queue: str, outcomes: list[Done]) -> list[list[Refused] | BaseException]:
        ordered = sorted(outcomes, key=lambda outcome: outcome.lease.id)
        ids, tokens, queues = rows.lease_columns(outcome.lease for outcome in ordered)
        if len(set(ids)) < len(ids):
            raise StorageError("two callers settle one job: one after the other, then")
        args = (self.at(), queues[0], ids, tokens)
        gone = set(await self._client.value("finish_plain", *args, repeat=False))
        if len(gone) < len(ids):
            self._apart = {name: end for name, end in self._apart.items() if end > time.monotonic()}
            self._apart[queue] = time.monotonic() + APART_FOR
        return [[] if outcome.lease.id in gone else await self._left_over(outcome) for outcome in outcomes]

    async def _left_over(self, outcome: Done) -> list[Refused] | BaseException:
        try:
            return await self._finish((outcome,))
        except Exception as error:  # his alone
            return error
